//! Reads sources: the partitions of a source on one worker, and the chain after them.
//!
//! With recovery an epoch ends first in the sources: a source records its positions, and its next input belongs
//! to the next epoch.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::scheduling::Activator;

use crate::batch::Batch;
use crate::checkpoint::PartitionPosition;
use crate::clock::now_ns;
use crate::control::Phase;
use crate::dataflow::build::{Capabilities, Epoch, Outlet, Root};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::dead_letters::DeadLetterSinks;
use crate::dataflow::opening::{Open, Opener, feed, open};
use crate::dataflow::pace::Pace;
use crate::dataflow::push::Push;
use crate::dataflow::segment::{end_epoch, finish, report, segment, set_deadline, tick, turn};
use crate::error::{Cause, Failure};
use crate::node::meeting;
use crate::node::{Node, NodeId};
use crate::policy::Policy;
use crate::source::{Events, Next, Source};

/// The root of a source.
pub(crate) fn source_root<B: Batch>(
    node: NodeId,
    source: Arc<dyn Source<B>>,
    outlet: Outlet<B>,
) -> Root {
    Arc::new(move |build| {
        let builder = OperatorBuilder::new(build.nodes[node].name.clone(), build.scope);
        let activator = build.scope.activator_for(builder.operator_info().address);
        let io = build.poller.io(
            build.scope.activator_for(builder.operator_info().address),
            (build.worker, build.workers),
        );
        let (opened, feeding) = open(build, node, &source, &io);
        let lockstep = build.context.borrow().lockstep();
        let unbounded = build.context.borrow().unbounded;
        let feed = feed(feeding, opened.as_ref().ok());
        let (opened, made) = segment(build, builder, &outlet, feed, opened)?;
        let builder = made.builder;
        let capabilities = made.capabilities;
        build
            .sources
            .borrow_mut()
            .push(build.scope.activator_for(builder.operator_info().address));
        let mut reader = Reader {
            node,
            batch_size_max: opened.opener.batch_size_max(),
            partitions: opened.partitions,
            opener: opened.opener,
            next: 0,
            meeting: Meeting::of(build.nodes, node),
            chain: made.chain,
            batch: B::default(),
            held: None,
            pace: Pace::new(1, unbounded),
            began_ns: 0,
            items: 0,
            activator,
            alarm: Rc::clone(&build.alarm),
            deadline: made.deadline,
            ended: false,
            lockstep,
            has_read: false,
            input_recorded: false,
            epoch: 0,
            closed: Vec::new(),
            capabilities: Rc::clone(&capabilities),
            policy: opened.policy,
            dead_letters: opened.dead_letters,
        };
        let context = Rc::clone(&build.context);
        let hold = build.hold.clone();
        builder.build_reschedule(move |initial| {
            *capabilities.borrow_mut() = initial;
            move |_| {
                turn(hold.as_ref(), &context, |cx| {
                    if reader.ended || cx.life.aborted() {
                        return false;
                    }
                    let outcome = reader.turn(cx);
                    set_deadline(reader.deadline.as_ref(), reader.ended, cx);
                    if outcome.is_err() || reader.ended {
                        capabilities.borrow_mut().clear();
                    }
                    report(outcome, cx);
                    !reader.ended
                })
            }
        });
        Ok(())
    })
}

/// The number of items and batches that a source passes on before other operators run.
const ITEMS_PER_TURN: usize = 1024;
const BATCHES_PER_TURN: usize = 256;
/// The turns for which a source waits for others that are earlier in event time, for each turn in which it reads.
const WAITED_MAX: u32 = 32;
/// The time after which a source checks again whether a worker is still congested.
const CONGESTED_NS: u64 = 50_000;
/// The same for an outbox that is over its limit.
const OUTBOX_FULL_NS: u64 = 5_000_000;
/// The time after which a source is asked again for partitions that it has found, in a run without epochs.
const ASK_NS: u64 = 250_000_000;

/// Returns the time at which a paused source checks again.
fn congested_until(cx: &WorkerContext) -> u64 {
    let wait = if cx.load.waits_for_delivery() {
        OUTBOX_FULL_NS
    } else {
        CONGESTED_NS
    };
    now_ns() + wait
}

/// The sources whose items meet those of this one.
struct Meeting {
    others: Vec<NodeId>,
    /// The turns for which it has waited for one of them.
    waited: u32,
}

impl Meeting {
    fn of(nodes: &[Node], source: NodeId) -> Self {
        Meeting {
            others: meeting::others(nodes, source),
            waited: 0,
        }
    }

    /// Whether the turn belongs to one of the others, which is earlier in event time and has more items: what this one
    /// has read ahead would wait in memory for it. Now and then it reads nevertheless, so that one item with a time far
    /// ahead does not stop it.
    fn waits(&mut self, source: NodeId, cx: &WorkerContext) -> bool {
        let waits = self.waited < WAITED_MAX && cx.reading.is_ahead(source, &self.others);
        self.waited = if waits { self.waited + 1 } else { 0 };
        waits
    }
}

/// The partitions of a source on one worker, and the chain after them.
struct Reader<B> {
    node: NodeId,
    partitions: Vec<Open<B>>,
    opener: Opener<B>,
    /// The index of the partition that is read next.
    next: usize,
    meeting: Meeting,
    chain: Box<dyn Push<B>>,
    batch: B,
    /// The rest of a batch over the limit of its turn, with its partition and the time at which it was
    /// complete. Nothing else is read before it is passed on, and no epoch ends within it.
    held: Option<(B, usize, u64)>,
    pace: Pace,
    /// The largest batch that steps receive.
    batch_size_max: usize,
    /// The time at which this turn took its first batch, and the number of its items; 0 before that.
    began_ns: u64,
    items: usize,
    activator: Activator,
    alarm: Rc<RefCell<Option<u64>>>,
    deadline: Option<Rc<Cell<i64>>>,
    ended: bool,
    /// True if at most one batch belongs to an epoch.
    lockstep: bool,
    has_read: bool,
    /// Whether the run has recorded that this source has input.
    input_recorded: bool,
    /// The current epoch of this source.
    epoch: Epoch,
    /// The positions of the partitions that have ended.
    closed: Vec<PartitionPosition>,
    capabilities: Capabilities,
    /// The policy for invalid input.
    policy: Policy,
    dead_letters: DeadLetterSinks,
}

impl<B: Batch> Reader<B> {
    fn turn(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        tick(self.deadline.as_ref(), &mut *self.chain, cx)?;
        self.publish_partitions(cx);
        if self.opener.published != cx.publication {
            self.note_lags(cx);
        }
        (self.began_ns, self.items) = (0, 0);
        if self.held.is_some() {
            return self.pass_held(cx);
        }
        if cx.checkpoint.is_some() {
            self.end_epoch_if_due(cx)?;
            if self.ended || self.partitions.is_empty() || (self.lockstep && self.has_read) {
                return Ok(());
            }
        }
        if cx.life.stopping() && cx.checkpoint.is_none() {
            self.partitions.clear();
            self.opener.grows = false;
        } else if cx.load.congested() {
            self.wake_at(congested_until(cx));
            return self.flush(cx);
        }
        if cx.checkpoint.is_none() {
            self.open_found_in_time(cx)?;
        }
        if self.meeting.waits(self.node, cx) {
            self.activator.activate();
            return self.flush(cx);
        }
        self.read_all(cx)?;
        cx.reading
            .note(self.node, self.items > 0 && !self.partitions.is_empty());
        let has_ended = self.partitions.is_empty() && !self.opener.grows;
        if has_ended && cx.checkpoint.is_none() && self.held.is_none() {
            return self.finish(cx);
        }
        self.flush(cx)?;
        self.learn();
        Ok(())
    }

    /// Reads each partition once, within the time of a turn; the next turn begins with the next partition.
    fn read_all(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        let mut ended = Vec::new();
        for _ in 0..self.partitions.len() {
            if self.next >= self.partitions.len() {
                self.next = 0;
            }
            match self.read(self.next, cx)? {
                Next::End => ended.push(self.next),
                Next::Batch => self.activator.activate(),
                _ => {
                    if let Some(at) = self.partitions[self.next].input.next_awake() {
                        self.wake_at(at);
                    }
                }
            }
            self.next += 1;
            if self.held.is_some() || self.turn_is_over(cx) {
                self.activator.activate();
                break;
            }
        }
        self.close(&ended, cx)
    }

    /// Returns how many items the receivers of this source can process at once.
    fn turn_items(&self, cx: &WorkerContext) -> usize {
        match self.pace.limit() {
            usize::MAX => usize::MAX,
            _ => cx.load.turn_items(),
        }
    }

    fn turn_is_over(&self, cx: &WorkerContext) -> bool {
        let elapsed = cx.last.saturating_sub(self.began_ns);
        self.began_ns > 0 && self.pace.is_over(self.items, elapsed)
    }

    /// Learns the pace of the steps after this source from the turn.
    fn learn(&mut self) {
        if self.items > 0 {
            let elapsed = now_ns().saturating_sub(self.began_ns);
            self.pace.learn(self.items, elapsed);
        }
    }

    /// Passes on as much of the held batch as fits into a turn.
    fn pass_held(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        // No epoch ends within the batch, and other sources may have begun the next one: their items wait at the
        // workers until this one ends too, and would hold it up for ever. Nor does a full outbox stop it: nothing is
        // delivered before that.
        if cx.load.workers_congested() && cx.epochs.epoch() <= self.epoch {
            self.wake_at(now_ns() + CONGESTED_NS);
            return self.flush(cx);
        }
        self.activator.activate();
        let mut room = self.pace.limit().min(self.turn_items(cx)).max(1);
        while let Some((mut rest, partition, stamp)) = self.held.take_if(|_| room > 0) {
            let mut batch = rest.take_first(room.min(self.batch_size_max));
            room -= batch.len();
            cx.load.hold(0, batch.len());
            if !rest.is_empty() {
                self.held = Some((rest, partition, stamp));
            }
            self.pass(&mut batch, (partition, stamp), cx)?;
        }
        self.flush(cx)?;
        self.learn();
        Ok(())
    }

    /// Passes a batch to the steps.
    fn pass(
        &mut self,
        batch: &mut B,
        (partition, stamp): (usize, u64),
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        let now = now_ns();
        if self.began_ns == 0 {
            self.began_ns = now;
        }
        cx.begin(stamp.min(now), now);
        cx.partition = partition;
        let size = batch.len();
        let metrics = &mut cx.metrics[self.node];
        metrics.items_out += size as u64;
        metrics.batches += 1;
        self.items += size;
        self.has_read = true;
        self.chain.push(batch, cx)
    }

    /// Ends the epoch when it is due, and the source when all sources of the flow have ended: the output at the
    /// end must belong to one epoch, the last.
    fn end_epoch_if_due(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if cx.epochs.epoch() > self.epoch {
            self.note_positions(cx)?;
            self.dead_letters.prepare(self.node, self.epoch, cx)?;
            let chain = &mut *self.chain;
            let epoch = &mut self.epoch;
            end_epoch(self.node, chain, epoch, &self.capabilities, cx)?;
            self.has_read = false;
            self.open_found(cx)?;
        }
        if self.partitions.is_empty() && cx.epochs.is_drained() {
            match &cx.checkpoint {
                // The committer ends the epoch first; it may be notified more than once.
                Some(checkpoint) if cx.epochs.keeps_state() => checkpoint.notify_drained(),
                _ => cx.epochs.end(),
            }
        }
        if cx.epochs.ends_in(self.epoch) {
            self.note_positions(cx)?;
            return self.finish(cx);
        }
        Ok(())
    }

    /// Opens the partitions of this worker that the source has found.
    fn open_found(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if !self.opener.grows || cx.epochs.phase() != Phase::Running {
            return Ok(());
        }
        cx.enter(self.node);
        let opened = self.opener.open_found(cx);
        let opened = opened.map_err(|cause| self.failure(cause, cx))?;
        if opened.is_empty() {
            return Ok(());
        }
        if cx.checkpoint.is_some() && self.partitions.is_empty() {
            cx.epochs.source_begins();
        }
        let named = opened.iter().map(|open| (open.index, open.name.clone()));
        self.opener.found.extend(named);
        self.partitions.extend(opened);
        self.publish_partitions(cx);
        self.activator.activate();
        Ok(())
    }

    /// As [`open_found`](Self::open_found), some times a second.
    fn open_found_in_time(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if self.opener.grows {
            let now = now_ns();
            if now >= self.opener.asks_at {
                self.opener.asks_at = now + ASK_NS;
                self.open_found(cx)?;
            }
            self.wake_at(self.opener.asks_at);
        }
        Ok(())
    }

    fn finish(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.ended = true;
        cx.reading.note(self.node, false);
        cx.live.clear();
        self.dead_letters.close(self.node, self.epoch, cx)?;
        finish(self.node, &mut *self.chain, self.epoch, cx)
    }

    fn note_positions(&self, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        let mut positions = self.closed.clone();
        for open in &self.partitions {
            positions.push(self.position_of(open, cx)?);
        }
        if let Some(checkpoint) = &mut cx.checkpoint {
            checkpoint.part.positions.extend(positions);
        }
        Ok(())
    }

    /// Returns the position of a partition.
    fn position_of(
        &self,
        open: &Open<B>,
        cx: &WorkerContext,
    ) -> Result<PartitionPosition, Failure> {
        let position = open.input.position();
        Ok(PartitionPosition {
            partition: open.name.clone(),
            position: position.map_err(|cause| self.failure(cause, cx))?,
        })
    }

    /// Closes partitions that have ended, all at once: there may be thousands.
    fn close(&mut self, indexes: &[usize], cx: &mut WorkerContext) -> Result<(), Failure> {
        if indexes.is_empty() {
            return Ok(());
        }
        cx.enter(self.node);
        self.next -= indexes.iter().filter(|index| **index < self.next).count();
        let mut has_ended = vec![false; self.partitions.len()];
        indexes.iter().for_each(|index| has_ended[*index] = true);
        let mut has_ended = has_ended.into_iter();
        let ended = self
            .partitions
            .extract_if(.., |_| has_ended.next() == Some(true));
        let ended: Vec<_> = ended.collect();
        let with_lag = ended.iter().filter(|open| open.has_lag());
        let with_lag = with_lag.map(|open| open.name.as_str()).collect();
        let source = &cx.step.metrics[self.node].name;
        cx.figures.forget_lags(source, &with_lag);
        if cx.checkpoint.is_some() {
            for open in &ended {
                let position = self.position_of(open, cx)?;
                self.closed.push(position);
            }
            if self.partitions.is_empty() {
                // The next turn checks whether it was the last of all.
                cx.epochs.source_ends();
            }
        }
        Ok(())
    }

    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.publish_partitions(cx);
        self.chain.flush(cx)
    }

    /// Notes how much each partition has not read, for the next publication of the worker.
    #[cold]
    fn note_lags(&mut self, cx: &mut WorkerContext) {
        cx.enter(self.node);
        self.opener.published = cx.publication;
        let name = &cx.metrics[self.node].name;
        for open in &mut self.partitions {
            open.note_lag(name, &cx.figures);
        }
    }

    fn publish_partitions(&self, cx: &mut WorkerContext) {
        cx.live.clear();
        cx.live
            .extend(self.partitions.iter().map(|open| open.index));
        cx.found.clone_from(&self.opener.found);
    }

    /// Reads one partition in one turn.
    fn read(&mut self, index: usize, cx: &mut WorkerContext) -> Result<Next, Failure> {
        let turn_items = self.turn_items(cx);
        let mut items = 0;
        for _ in 0..BATCHES_PER_TURN {
            cx.enter(self.node);
            self.batch.clear();
            let room = self.pace.limit().saturating_sub(self.items).max(1);
            let room = room.min(turn_items).min(self.batch_size_max);
            let mut events = Events {
                cx: &mut cx.step,
                clock: &*cx.clock,
                node: self.node,
                limit: room,
                policy: &mut self.policy,
            };
            let next = self.partitions[index]
                .input
                .next_batch(&mut self.batch, &mut events);
            match next.map_err(|cause| self.failure(cause, cx))? {
                Next::Batch => {
                    let size = self.batch.len();
                    self.take(index, room, cx)?;
                    items += size;
                    if !self.input_recorded {
                        self.input_recorded = true;
                        cx.epochs.note_input();
                    }
                    let over = self.held.is_some() || self.turn_is_over(cx);
                    if items >= ITEMS_PER_TURN || self.lockstep || over {
                        break;
                    }
                }
                Next::Abort => return Err(self.failure("the input was aborted".into(), cx)),
                quiet => return Ok(quiet),
            }
        }
        Ok(Next::Batch)
    }

    /// Takes the batch that was read: passes on as much as fits into this turn, and holds the rest.
    fn take(&mut self, index: usize, room: usize, cx: &mut WorkerContext) -> Result<(), Failure> {
        let of = (self.partitions[index].index, u64::MAX);
        let mut batch = std::mem::take(&mut self.batch);
        if batch.len() > room {
            let first = batch.take_first(room);
            cx.load.hold(batch.len(), 0);
            self.held = Some((std::mem::replace(&mut batch, first), of.0, now_ns()));
        }
        let outcome = self.pass(&mut batch, of, cx);
        self.batch = batch;
        outcome
    }

    fn failure(&self, cause: Cause, cx: &WorkerContext) -> Failure {
        match cause.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(cause) => Failure::new(cx.metrics[self.node].name.clone(), cause),
        }
    }

    fn wake_at(&self, at: u64) {
        let mut alarm = self.alarm.borrow_mut();
        *alarm = Some(alarm.map_or(at, |other| other.min(at)));
    }
}
