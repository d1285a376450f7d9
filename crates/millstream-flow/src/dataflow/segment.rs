//! A segment: one timely operator and all the steps fused into it.
//!
//! Invariant: an operator holds a capability for each of its outputs until it has ended, so that its output at
//! the end is still in time; the operators after it see the end only then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use timely::dataflow::channels::pact::DistributorPact;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::frontier::MutableAntichain;
use timely::scheduling::Activator;

use crate::batch::Batch;
use crate::clock::now_ns;
use crate::control::Wrapper;
use crate::control::in_flight::Processed;
use crate::dataflow::build::{
    Capabilities, Deadline, Epoch, Feed, Outlet, Root, SegmentBuild, WorkerBuild,
};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::edge::Receiver;
use crate::dataflow::pace::Pace;
use crate::dataflow::packet::{ByAddress, Content, Packet};
use crate::dataflow::push::Push;
use crate::error::{Failure, FlowError};
use crate::node::{EdgeId, NodeId};
use crate::time::{BEFORE_ALL, NEVER, Watermark, Watermarks};

/// Runs one turn of an operator inside the wrapper of the run.
pub(crate) fn turn(
    hold: Option<&Wrapper>,
    context: &RefCell<WorkerContext>,
    mut body: impl FnMut(&mut WorkerContext) -> bool,
) -> bool {
    let mut run = || {
        let cx = &mut *context.borrow_mut();
        cx.turn_begins();
        let again = body(cx);
        cx.turn_ends();
        again
    };
    let Some(hold) = hold else { return run() };
    let mut again = false;
    hold(&mut || again = run());
    again
}

/// An operator whose chain is created, and whose logic is not set yet.
pub(crate) struct Made<'s, B> {
    pub(crate) builder: OperatorBuilder<'s, Epoch>,
    pub(crate) capabilities: Capabilities,
    pub(crate) chain: Box<dyn Push<B>>,
    pub(crate) deadline: Option<Rc<Cell<i64>>>,
}

/// Creates the chain after a root, once its `source` is open. A started operator must be built: if a connector
/// cannot be opened, it becomes one that does nothing.
pub(crate) fn segment<'s, B: Batch, S>(
    build: &mut WorkerBuild<'_, 's>,
    builder: OperatorBuilder<'s, Epoch>,
    outlet: &Outlet<B>,
    feed: Feed,
    source: Result<S, FlowError>,
) -> Result<(S, Made<'s, B>), FlowError> {
    let capabilities: Capabilities = Rc::default();
    let mut segment = SegmentBuild {
        builder,
        capabilities: Rc::clone(&capabilities),
        described_edges: build.described_edges,
        form: build.form.clone(),
        edges: &mut build.edges,
        outputs: 0,
        feed,
        keeps_time: false,
        nodes: build.nodes,
        context: &build.context,
        rehearsal: build.rehearsal,
    };
    let made = source.and_then(|source| Ok((source, outlet.build(&mut segment)?)));
    let builder = segment.builder;
    let keeps_time = segment.keeps_time;
    let deadline = keeps_time.then(|| {
        // The first turn runs at once, and requests the next one.
        let at = Rc::new(Cell::new(BEFORE_ALL));
        let activator = build.scope.activator_for(builder.operator_info().address);
        build.deadlines.borrow_mut().push(Deadline {
            at: Rc::clone(&at),
            activator,
        });
        at
    });
    match made {
        Ok((source, chain)) => Ok((
            source,
            Made {
                builder,
                capabilities,
                chain,
                deadline,
            },
        )),
        Err(error) => {
            builder.build_reschedule(|_| |_| false);
            Err(error)
        }
    }
}

/// Creates the root of an operator with inputs from other operators. `routed` says whether items come from all
/// workers or from this one only.
pub(crate) fn arrival_root<B: Batch>(
    node: NodeId,
    edges: Vec<EdgeId>,
    routed: bool,
    outlet: Outlet<B>,
) -> Root {
    Arc::new(move |build| {
        let name = build.nodes[node].name.clone();
        let streams: Option<Vec<_>> = edges.iter().map(|edge| build.edges.remove(edge)).collect();
        let streams = streams.ok_or_else(|| {
            FlowError::Usage(format!(
                "step \"{name}\" comes before the step that it reads"
            ))
        })?;
        let receiver = receiver(build, &name, &edges)?;
        let mut builder = OperatorBuilder::new(name, build.scope);
        let place = (build.worker, build.workers);
        let mut marks = Vec::new();
        let mut inputs = Vec::new();
        for edge in streams {
            marks.extend(expected(&edge.feeding, routed, place));
            inputs.push(builder.new_input(edge.stream, DistributorPact(|_| ByAddress)));
        }
        let activator = build.scope.activator_for(builder.operator_info().address);
        build.publish_with(&builder);
        let marks = Watermarks::new(marks);
        let feed = Feed::by(build.workers);
        let ((), made) = segment(build, builder, &outlet, feed, Ok(()))?;
        let builder = made.builder;
        let capabilities = made.capabilities;
        let unbounded = build.context.borrow().unbounded;
        let mut arrival = Arrival {
            routed,
            deadline: made.deadline,
            pace: Pace::new(FIRST_TURN_ITEMS, unbounded),
            capabilities: Rc::clone(&capabilities),
            from_others: vec![Processed::default(); build.processes()],
            ..Arrival::new(node, receiver, marks, made.chain, activator)
        };
        let context = Rc::clone(&build.context);
        let hold = build.hold.clone();
        builder.build_reschedule(move |initial| {
            *capabilities.borrow_mut() = initial;
            let mut ended = false;
            move |frontiers| {
                turn(hold.as_ref(), &context, |cx| {
                    if ended || cx.life.aborted() {
                        return false;
                    }
                    let mut outcome = arrival.begin(cx);
                    for (index, input) in inputs.iter_mut().enumerate() {
                        input.for_each(|capability, packet| {
                            let epoch = capability.least().copied();
                            if outcome.is_ok() {
                                outcome = arrival.take(index, epoch, packet, cx);
                            }
                        });
                    }
                    if outcome.is_ok() {
                        let gone_on = arrival.end_epochs(frontiers, cx);
                        ended = *gone_on.as_ref().unwrap_or(&false);
                        outcome = gone_on.map(drop);
                    }
                    set_deadline(arrival.deadline.as_ref(), ended, cx);
                    report(outcome, cx);
                    !ended
                })
            }
        });
        Ok(())
    })
}

/// Creates the receiver of `edges` at the step `name`.
fn receiver<B: Batch>(
    build: &WorkerBuild<'_, '_>,
    name: &str,
    edges: &[EdgeId],
) -> Result<Receiver<B>, FlowError> {
    let all = build.described_edges;
    let form = &build.form;
    Receiver::of(name, edges, all, build.nodes, form)
}

/// Returns the initial event times of the senders of a connection: senders without input are not waited for.
fn expected(
    feeding: &[bool],
    routed: bool,
    (worker, workers): (usize, usize),
) -> impl Iterator<Item = Watermark> {
    let senders = if routed {
        0..workers
    } else {
        worker..worker + 1
    };
    senders.map(move |sender| {
        if feeding[sender] {
            Watermark::UNKNOWN
        } else {
            Watermark::NOTHING
        }
    })
}

/// Notifies the steps of a chain that use processing time of the current time.
pub(crate) fn tick<B: Batch>(
    deadline: Option<&Rc<Cell<i64>>>,
    chain: &mut dyn Push<B>,
    cx: &mut WorkerContext,
) -> Result<(), Failure> {
    if deadline.is_none() {
        cx.deadline = NEVER;
        return Ok(());
    }
    cx.read_clock();
    cx.floor = NEVER;
    let now = now_ns();
    cx.stamp = now;
    cx.last = now;
    chain.tick(cx)
}

/// The number of items in the first turn of an operator with inputs from other operators.
const FIRST_TURN_ITEMS: usize = 16;

/// Records when an operator that uses processing time must run next.
pub(crate) fn set_deadline(deadline: Option<&Rc<Cell<i64>>>, ended: bool, cx: &WorkerContext) {
    if let Some(at) = deadline {
        at.set(if ended { NEVER } else { cx.deadline });
    }
}

/// The inputs from other operators, and the chain after them.
struct Arrival<B> {
    node: NodeId,
    receiver: Receiver<B>,
    marks: Watermarks,
    routed: bool,
    chain: Box<dyn Push<B>>,
    deadline: Option<Rc<Cell<i64>>>,
    /// The current epoch of this operator.
    epoch: Epoch,
    pace: Pace,
    /// The time at which this turn took its first batch, and the number of its items; 0 before that.
    began_ns: u64,
    items: usize,
    /// The load that was processed and not flushed.
    processed: Processed,
    /// The same of each other process that sent it; empty in a run of one process.
    from_others: Vec<Processed>,
    /// Packets of this epoch that are left for later turns, in order.
    pending: VecDeque<(usize, Packet)>,
    /// Packets of later epochs in the order of arrival, with their inputs.
    waiting: VecDeque<(Epoch, usize, Packet)>,
    activator: Activator,
    capabilities: Capabilities,
}

impl<B: Batch> Arrival<B> {
    /// Creates an arrival that has received nothing yet.
    fn new(
        node: NodeId,
        receiver: Receiver<B>,
        marks: Watermarks,
        chain: Box<dyn Push<B>>,
        activator: Activator,
    ) -> Self {
        Arrival {
            node,
            receiver,
            marks,
            routed: false,
            chain,
            deadline: None,
            epoch: 0,
            pace: Pace::new(FIRST_TURN_ITEMS, false),
            began_ns: 0,
            items: 0,
            processed: Processed::default(),
            from_others: Vec::new(),
            pending: VecDeque::new(),
            waiting: VecDeque::new(),
            activator,
            capabilities: Capabilities::default(),
        }
    }

    /// Whether all packets of this epoch have arrived.
    fn epoch_is_over(&self, frontiers: &[MutableAntichain<Epoch>]) -> bool {
        frontiers
            .iter()
            .all(|frontier| !frontier.less_equal(&self.epoch))
    }

    /// Whether all packets have arrived.
    fn is_over(&self, frontiers: &[MutableAntichain<Epoch>]) -> bool {
        self.waiting.is_empty()
            && self.pending.is_empty()
            && frontiers.iter().all(|frontier| frontier.is_empty())
    }

    /// Takes a packet: processes it if it belongs to this epoch, and keeps it for later if not.
    fn take(
        &mut self,
        input: usize,
        epoch: Option<Epoch>,
        packet: &mut Packet,
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        let packet = std::mem::take(packet);
        match epoch {
            Some(epoch) if epoch > self.epoch => {
                self.waiting.push_back((epoch, input, packet));
                Ok(())
            }
            _ if self.pending.is_empty() && !self.turn_is_over(cx) => {
                self.receive(input, packet, cx)
            }
            _ => {
                self.pending.push_back((input, packet));
                Ok(())
            }
        }
    }

    /// Begins a turn.
    fn begin(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        (self.began_ns, self.items) = (0, 0);
        tick(self.deadline.as_ref(), &mut *self.chain, cx)?;
        self.process_pending(cx)
    }

    fn turn_is_over(&self, cx: &WorkerContext) -> bool {
        let elapsed = cx.last.saturating_sub(self.began_ns);
        self.began_ns > 0 && self.pace.is_over(self.items, elapsed)
    }

    /// Processes the packets that earlier turns have left, within the time of a turn.
    fn process_pending(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        while !self.turn_is_over(cx)
            && let Some((input, packet)) = self.pending.pop_front()
        {
            self.receive(input, packet, cx)?;
        }
        Ok(())
    }

    /// Learns the pace of this operator from the turn.
    fn learn(&mut self, cx: &mut WorkerContext) {
        if self.items > 0 {
            self.pace
                .learn(self.items, now_ns().saturating_sub(self.began_ns));
            cx.publish_pace(self.node, &self.pace);
        }
    }

    /// Ends the epochs that are complete; true if all have ended.
    fn end_epochs(
        &mut self,
        frontiers: &[MutableAntichain<Epoch>],
        cx: &mut WorkerContext,
    ) -> Result<bool, Failure> {
        self.flush(cx)?;
        while self.pending.is_empty() && self.epoch_is_over(frontiers) {
            if self.is_over(frontiers) && (cx.checkpoint.is_none() || cx.epochs.ends_in(self.epoch))
            {
                finish(self.node, &mut *self.chain, self.epoch, cx)?;
                self.capabilities.borrow_mut().clear();
                return Ok(true);
            }
            self.end_epoch(cx)?;
        }
        if !self.pending.is_empty() {
            self.activator.activate();
        }
        self.learn(cx);
        Ok(false)
    }

    /// Ends the epoch, and takes the packets that waited for the next one.
    fn end_epoch(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        end_epoch(
            self.node,
            &mut *self.chain,
            &mut self.epoch,
            &self.capabilities,
            cx,
        )?;
        for _ in 0..self.waiting.len() {
            let Some((epoch, input, packet)) = self.waiting.pop_front() else {
                break;
            };
            if epoch > self.epoch {
                self.waiting.push_back((epoch, input, packet));
            } else {
                self.pending.push_back((input, packet));
            }
        }
        self.process_pending(cx)?;
        self.flush(cx)
    }

    /// Flushes the chain; the processed input is no longer in flight.
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.chain.flush(cx)?;
        let processed = std::mem::take(&mut self.processed);
        if !processed.is_nothing() {
            cx.load.subtract(cx.worker, processed);
        }
        for (process, processed) in self.from_others.iter_mut().enumerate() {
            if !processed.is_nothing() {
                let processed = std::mem::take(processed);
                cx.load.add_handled(process, cx.worker, processed);
            }
        }
        Ok(())
    }

    /// Counts a processed load of a packet that came from `other` process, or from this one.
    fn count(&mut self, other: Option<usize>, processed: Processed) {
        let from = other.and_then(|process| self.from_others.get_mut(process));
        from.unwrap_or(&mut self.processed).add(processed);
    }

    fn receive(
        &mut self,
        input: usize,
        mut packet: Packet,
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        self.receiver.check(input, &packet, cx.workers)?;
        let sender = if self.routed {
            input * cx.workers + packet.from
        } else {
            input
        };
        let content = std::mem::take(&mut packet.content);
        if let Content::Watermark(mark) = content {
            let Some(joined) = self.marks.update(sender, mark) else {
                return Ok(());
            };
            let now = now_ns();
            cx.begin(now, now);
            cx.floor = joined.at;
            return self.chain.watermark(joined, cx);
        }
        let other = cx.load.other_process(packet.from);
        if other.is_some_and(|process| !cx.load.same_clock(process)) {
            // The clock of another machine: the age of the items begins here.
            packet.stamp = now_ns();
        }
        cx.enter(self.node);
        let mut batch = self.receiver.batch(input, packet.items, content)?;
        let now = now_ns();
        if self.began_ns == 0 {
            self.began_ns = now;
        }
        cx.begin(packet.stamp, now);
        cx.enter(self.node);
        cx.floor = packet.floor.min(self.marks.floor(sender));
        let items = packet.items;
        let room = self.pace.limit() - self.items;
        if let Some(edge) = self.receiver.edge(input) {
            let taken = items.min(room);
            cx.figures.edge_counts.taken(cx.worker, edge, taken);
        }
        if items <= room {
            self.items += items;
            self.count(other, Processed::of(items, 0));
            return self.chain.push(&mut batch, cx);
        }
        // Items that do not fit into this turn come first in the next one.
        let mut first = batch.take_first(room);
        packet.items = items - room;
        packet.content = Content::Batch(batch);
        self.items += room;
        self.count(other, Processed::of(items, packet.items));
        self.pending.push_front((input, packet));
        self.chain.push(&mut first, cx)
    }
}

/// Ends an epoch of an operator: sends its part to the committer; its later output belongs to the next epoch.
pub(crate) fn end_epoch<B: Batch>(
    node: NodeId,
    chain: &mut dyn Push<B>,
    epoch: &mut Epoch,
    capabilities: &Capabilities,
    cx: &mut WorkerContext,
) -> Result<(), Failure> {
    chain.flush(cx)?;
    let now = now_ns();
    cx.begin(now, now);
    chain.epoch(*epoch, cx)?;
    let place = (cx.worker, cx.now);
    let deadline = cx.deadline;
    if let Some(checkpoint) = &mut cx.checkpoint {
        checkpoint.part.deadline = deadline;
        checkpoint.send_part(node, place, *epoch, false);
    }
    *epoch += 1;
    for capability in capabilities.borrow_mut().iter_mut() {
        capability.downgrade(epoch);
    }
    Ok(())
}

/// Ends an operator.
pub(crate) fn finish<B: Batch>(
    node: NodeId,
    chain: &mut dyn Push<B>,
    epoch: Epoch,
    cx: &mut WorkerContext,
) -> Result<(), Failure> {
    let now = now_ns();
    cx.begin(now, now);
    cx.floor = NEVER;
    chain.end(epoch, cx)?;
    let place = (cx.worker, cx.now);
    let deadline = cx.deadline;
    if let Some(checkpoint) = &mut cx.checkpoint {
        checkpoint.part.deadline = deadline;
        checkpoint.send_part(node, place, epoch, true);
    }
    Ok(())
}

pub(crate) fn report(outcome: Result<(), Failure>, cx: &WorkerContext) {
    if let Err(failure) = outcome {
        cx.life.fail(FlowError::Failed(failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::WallClock;
    use crate::control::Control;
    use crate::dataflow::edge::Form;
    use crate::metrics::StepMetrics;

    /// A chain that accepts everything.
    struct Anything;

    impl Push<Vec<u8>> for Anything {
        fn push(&mut self, _: &mut Vec<u8>, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
        fn flush(&mut self, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
        fn watermark(&mut self, _: Watermark, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
        fn tick(&mut self, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
        fn epoch(&mut self, _: Epoch, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
        fn end(&mut self, _: Epoch, _: &mut WorkerContext) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn context() -> WorkerContext {
        let metrics = vec![StepMetrics::new("merged", "merge")];
        let control = Arc::new(Control::new(1, None));
        WorkerContext::new((0, 1), metrics, Arc::new(WallClock::default()), control)
    }

    #[test]
    fn a_packet_of_another_type_is_an_error_and_not_dropped() {
        let said = timely::execute_directly(|worker| {
            let activator =
                worker.dataflow::<Epoch, _, _>(|scope| scope.activator_for(Rc::from(Vec::new())));
            let marks = Watermarks::new(vec![Watermark::UNKNOWN]);
            let receiver = Receiver::of("merged", &[], &[], &[], &Form::InMemory).unwrap();
            let chain = Box::new(Anything);
            let mut arrival = Arrival::<Vec<u8>>::new(0, receiver, marks, chain, activator);
            let packet = |batch: Box<dyn std::any::Any + Send>| Packet {
                items: 3,
                content: Content::Batch(batch),
                ..Packet::default()
            };
            let mut cx = context();
            let good = arrival.take(0, None, &mut packet(Box::new(vec![1u8, 2, 3])), &mut cx);
            assert!(good.is_ok());
            let bad = arrival.take(0, None, &mut packet(Box::new(vec!["a", "b", "c"])), &mut cx);
            bad.err().map(|failure| format!("{failure:?}"))
        });
        let expected =
            "step \"merged\": 3 items could not be sent on: they came as a batch of another type";
        assert_eq!(said.as_deref(), Some(expected));
    }
}
