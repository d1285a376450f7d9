//! Assigns times to items, and creates watermarks.
//!
//! It is part of the chain of a source, before any exchange, where each batch comes from one known partition,
//! whose watermark follows its items. The joined watermark is sent on after the batches, when the source pauses
//! or ends its turn.

mod clocks;
mod silent;

use std::sync::Arc;

pub use clocks::EventClock;
use silent::Silent;

use crate::batch::{Batch, Data, timed};
use crate::checkpoint::TimeMark;
use crate::dataflow::build::Outlet;
use crate::dataflow::context::WorkerContext;
use crate::dataflow::dead_letters::DeadLetterSinks;
use crate::dataflow::push::Push;
use crate::describe::graph::{Graph, Mistake};
use crate::describe::stream::{Making, Pipe, Stream};
use crate::error::{Failure, FlowError};
use crate::metrics::progress::{Progress, WatermarkGauge};
use crate::mutex::lock;
use crate::node::NodeId;
use crate::panics::in_step;
use crate::step::Context;
use crate::time::{BEFORE_ALL, EventTime, Sender, Timed, Watermark, nanos};

/// The interval at which processing time advances without items.
const TICK: std::time::Duration = std::time::Duration::from_millis(10);

/// The origin of the times of a stream.
#[derive(Clone, Copy)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum TimeSource {
    /// From the items.
    Event(EventTime),
    /// The clock, when an item is read.
    Processing,
    /// A clock of the user.
    Clock,
}

/// The watermark of one partition.
#[doc(hidden)] // For the other crates of Millstream.
pub struct PartitionTime {
    partition: usize,
    name: String,
    lateness: i64,
    watermark: i64,
    /// The processing time of its last item; before all times until the first turn.
    heard: i64,
    sender: Sender,
    /// Where the watermark is published, from the first turn on.
    gauge: Option<Arc<WatermarkGauge>>,
}

impl PartitionTime {
    fn new((partition, name): (usize, String), source: TimeSource, watermark: i64) -> Self {
        PartitionTime {
            partition,
            name,
            lateness: source.lateness(),
            watermark,
            heard: BEFORE_ALL,
            sender: Sender::Live,
            gauge: None,
        }
    }

    /// Publishes the watermark.
    fn publish(&mut self, source: &str, progress: &Progress) {
        let watch = || progress.watch_watermark(source, &self.name);
        let gauge = self.gauge.get_or_insert_with(watch);
        gauge.set(self.watermark, self.sender == Sender::Live);
    }

    /// Advances the watermark to an item with this time; returns the watermark of the item.
    pub fn pass(&mut self, time: i64) -> i64 {
        self.pass_item(time, time.saturating_sub(self.lateness))
    }

    /// Advances the watermark to `reached`, at an item with this time; returns the watermark of the item: it is
    /// not after the item, unless it was so before.
    pub fn pass_item(&mut self, time: i64, reached: i64) -> i64 {
        let of_item = self.watermark.max(reached.min(time));
        self.pass_to(reached);
        of_item
    }

    /// Advances the watermark to `reached`, without an item.
    pub fn pass_to(&mut self, reached: i64) {
        self.watermark = self.watermark.max(reached);
    }

    /// Returns the number of the partition in this run.
    #[must_use]
    pub fn number(&self) -> usize {
        self.partition
    }

    /// Returns the name of the partition.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its watermark; before all times if it has not begun.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    fn mark(&self) -> Watermark {
        Watermark {
            at: self.watermark,
            sender: self.sender,
        }
    }
}

/// Assigns times to the items of a batch.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Assign<I, O>: 'static {
    /// Moves the items of `input` to `output` with their times, and calls [`pass`](PartitionTime::pass) for
    /// each of them.
    ///
    /// # Errors
    /// The failure of a function of the user.
    fn assign(
        &mut self,
        input: &mut I,
        output: &mut O,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<(), Failure>;
    /// Called when there are no items: a clock of the user may let the partition's watermark
    /// [advance](PartitionTime::pass_to).
    ///
    /// # Errors
    /// As for `assign`.
    fn pause(&mut self, _: &mut PartitionTime, _: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
}

impl TimeSource {
    /// Returns how much earlier than the latest item of its partition an item may be.
    fn lateness(self) -> i64 {
        match self {
            TimeSource::Event(how) => how.lateness,
            TimeSource::Processing | TimeSource::Clock => 0,
        }
    }
}

/// The step that assigns times, on one worker.
struct Assigner<O, A> {
    node: NodeId,
    /// The number of this step among those that assign times to the source.
    nth: usize,
    /// The source of the partitions.
    origin: NodeId,
    source: TimeSource,
    assign: A,
    output: O,
    partitions: Vec<PartitionTime>,
    joined: Watermark,
    silent: Silent,
    dead_letters: DeadLetterSinks,
    next: Box<dyn Push<O>>,
}

/// The name under which the event time of a partition is saved: its own, with a number after the first step that
/// assigns times.
fn saved_name(partition: &str, nth: usize) -> String {
    match nth {
        0 => partition.to_owned(),
        nth => format!("{partition}#{nth}"),
    }
}

impl<O, A> Assigner<O, A> {
    /// Adds the partitions that the source has found during the run. Event time waits for them as for those at the
    /// start.
    fn add_found(&mut self, cx: &WorkerContext) {
        for (number, name) in &cx.found {
            let at = self
                .partitions
                .binary_search_by_key(number, |known| known.partition);
            if let Err(at) = at {
                let name = saved_name(name, self.nth);
                let found = PartitionTime::new((*number, name), self.source, BEFORE_ALL);
                self.partitions.insert(at, found);
            }
        }
    }

    /// Updates the state of the partitions, and joins their watermarks.
    fn join(&mut self, cx: &mut WorkerContext) -> Option<Watermark> {
        self.add_found(cx);
        for partition in &mut self.partitions {
            if partition.heard == BEFORE_ALL {
                partition.heard = cx.now;
            }
            if cx.live.binary_search(&partition.partition).is_err() {
                partition.sender = Sender::Ended;
                continue;
            }
            match self.source {
                TimeSource::Event(EventTime {
                    idle: Some(idle), ..
                }) => {
                    let until = partition.heard.saturating_add(idle);
                    if cx.now >= until {
                        partition.sender = Sender::Idle;
                    } else {
                        cx.wake_at(until);
                    }
                }
                TimeSource::Event(_) | TimeSource::Clock => {}
                TimeSource::Processing => partition.watermark = partition.watermark.max(cx.now),
            }
        }
        if matches!(self.source, TimeSource::Processing | TimeSource::Clock) {
            let next = cx.now.saturating_add(nanos(TICK));
            cx.wake_at(next);
        }
        let source = &cx.step.metrics[self.origin].name;
        for partition in &mut self.partitions {
            partition.publish(source, &cx.figures.progress);
        }
        if matches!(self.source, TimeSource::Event(EventTime { idle: None, .. })) {
            let waits_for =
                |it: &&PartitionTime| it.sender == Sender::Live && it.watermark == BEFORE_ALL;
            let silent = self.partitions.iter().filter(waits_for);
            let silent = silent.map(|it| (it.partition, it.name.as_str()));
            self.silent.report(source, silent, &cx.figures.progress);
        }
        let mut joined = Watermark::join(self.partitions.iter().map(PartitionTime::mark));
        joined.at = joined.at.max(self.joined.at);
        cx.reading.advance(self.origin, joined.at);
        let changed = joined != self.joined;
        self.joined = joined;
        changed.then_some(joined)
    }

    /// Records the event time of each partition for recovery, beside the positions of the source. Processing time is that
    /// of the commit.
    fn note(&self, cx: &mut WorkerContext) {
        if matches!(self.source, TimeSource::Processing) {
            return;
        }
        let step = &cx.step.metrics[self.origin].name;
        let begun = self.partitions.iter();
        let begun = begun.filter(|partition| partition.watermark != BEFORE_ALL);
        if let Some(checkpoint) = &mut cx.checkpoint {
            checkpoint
                .part
                .watermarks
                .extend(begun.map(|partition| TimeMark {
                    step: step.clone(),
                    partition: partition.name.clone(),
                    at: partition.watermark,
                }));
        }
    }
}

impl<I: Batch, O: Batch, A: Assign<I, O>> Push<I> for Assigner<O, A> {
    fn push(&mut self, batch: &mut I, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        let items = batch.len();
        self.add_found(cx);
        let known = self
            .partitions
            .binary_search_by_key(&cx.partition, |known| known.partition);
        let Ok(index) = known else {
            let unknown = format!(
                "a batch of partition {}, which was not opened",
                cx.partition
            );
            return Err(Failure::new(cx.step_name(), unknown));
        };
        let others = self.partitions.iter().enumerate();
        let others = others.filter(|(other, _)| *other != index);
        cx.floor = Watermark::floor(others.map(|(_, partition)| partition.mark()));
        let partition = &mut self.partitions[index];
        partition.heard = cx.now;
        partition.sender = Sender::Live;
        self.assign.assign(batch, &mut self.output, partition, cx)?;
        cx.record(self.node, items, self.output.len());
        if !self.output.is_empty() {
            self.next.push(&mut self.output, cx)?;
            self.output.clear();
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if matches!(self.source, TimeSource::Clock) {
            cx.enter(self.node);
            for partition in &mut self.partitions {
                if cx.live.binary_search(&partition.partition).is_ok() {
                    self.assign.pause(partition, cx)?;
                }
            }
        }
        if let Some(mark) = self.join(cx) {
            cx.floor = mark.at;
            self.next.watermark(mark, cx)?;
        }
        self.next.flush(cx)
    }
    fn watermark(&mut self, _: Watermark, _: &mut WorkerContext) -> Result<(), Failure> {
        Ok(())
    }
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.next.tick(cx)
    }
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.note(cx);
        self.dead_letters.prepare(self.node, epoch, cx)?;
        self.next.epoch(epoch, cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        self.note(cx);
        self.dead_letters.close(self.node, epoch, cx)?;
        if !cx.suspended()
            && let Some(mark) = self.join(cx)
        {
            cx.floor = mark.at;
            self.next.watermark(mark, cx)?;
        }
        self.next.end(epoch, cx)
    }
}

impl<B: Batch> Pipe<B> {
    /// Assigns times to the items by an [`Assign`] of the caller.
    ///
    /// `name` is the name of the step in errors and metrics, and may be empty. `source` states where the
    /// times come from: it has the lateness that is allowed. `make` is called once on each worker. The step
    /// must come before the first exchange or merge.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::TimeMisplaced`] when an exchange or merge is
    /// before it, and the error of `make`.
    ///
    /// ```
    /// use millstream_flow::assign::{Assign, PartitionTime, TimeSource};
    /// use millstream_flow::step::Context;
    /// use millstream_flow::{EventTime, Failure, Flow, Options, Timed, testing};
    ///
    /// /// The items are their own times.
    /// struct OwnTimes;
    /// impl Assign<Vec<i64>, Vec<Timed<i64>>> for OwnTimes {
    ///     fn assign(
    ///         &mut self,
    ///         input: &mut Vec<i64>,
    ///         output: &mut Vec<Timed<i64>>,
    ///         partition: &mut PartitionTime,
    ///         _: &mut Context,
    ///     ) -> Result<(), Failure> {
    ///         output.extend(input.drain(..).map(|value| {
    ///             let (time, watermark) = (value, partition.pass(value));
    ///             Timed { time, watermark, value }
    ///         }));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("times"), testing::Collected::new());
    /// flow.source("in", testing::items([5, 9]))
    ///     .assigned("", TimeSource::Event(EventTime::default()), |_making| Ok(OwnTimes))
    ///     .map(|item| item.time)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [5, 9]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn assigned<O: Batch, A: Assign<B, O>>(
        &self,
        name: &str,
        source: TimeSource,
        make: impl Fn(&Making<'_>) -> Result<A, FlowError> + Send + Sync + 'static,
    ) -> Pipe<O> {
        let kind = match source {
            TimeSource::Event(_) | TimeSource::Clock => "event_time",
            TimeSource::Processing => "processing_time",
        };
        let (node, origin, nth) = {
            let mut graph = lock(&self.graph);
            let root = root_of(&graph, self.node);
            if graph.nodes[root].kind != "source" {
                graph.mistake(Mistake::TimeMisplaced(kind, root));
            }
            // The saved state is found by the source and this number: such steps need no name.
            let others = 0..graph.nodes.len();
            let others = others.filter(|other| graph.nodes[*other].kind == kind);
            let nth = others
                .filter(|other| root_of(&graph, *other) == root)
                .count();
            (graph.add(kind, name, vec![self.node]), root, nth)
        };
        let outlet = Outlet::<O>::new();
        let after = outlet.clone();
        self.outlet.read_by(Arc::new(move |segment| {
            let called = in_step(&segment.nodes[node].name);
            let making = Making::new(node, segment);
            let assign = make(&making)?;
            let dead_letters = making.into_dead_letters();
            drop(called);
            let partitions = segment.partitions().map(|(partition, name)| {
                let name = saved_name(name, nth);
                let watermark = match source {
                    TimeSource::Processing => BEFORE_ALL,
                    TimeSource::Event(_) | TimeSource::Clock => segment.watermark(origin, &name),
                };
                PartitionTime::new((partition, name), source, watermark)
            });
            let partitions = partitions.collect();
            let next = after.build(segment)?;
            segment.keeps_time |= match source {
                TimeSource::Event(how) => how.clocked || how.idle.is_some(),
                TimeSource::Processing | TimeSource::Clock => true,
            };
            let assigner: Box<dyn Push<B>> = Box::new(Assigner {
                node,
                nth,
                origin,
                source,
                assign,
                output: O::default(),
                partitions,
                joined: Watermark::UNKNOWN,
                silent: Silent::default(),
                dead_letters,
                next,
            });
            Ok(assigner)
        }));
        Pipe {
            graph: Arc::clone(&self.graph),
            node,
            outlet,
        }
    }
}

/// Returns the root of a step's chain: its source, or a later node with inputs from other operators.
fn root_of(graph: &Graph, mut node: NodeId) -> NodeId {
    loop {
        let this = &graph.nodes[node];
        match this.inputs.first() {
            Some(_) if this.exchanged || this.kind == "merge" => return node,
            Some(first) => node = *first,
            None => return node,
        }
    }
}

struct ByFunction<F>(Arc<F>);

impl<T: Data, F: Fn(&T) -> i64 + Send + Sync + 'static> Assign<Vec<T>, Vec<Timed<T>>>
    for ByFunction<F>
{
    fn assign(
        &mut self,
        input: &mut Vec<T>,
        output: &mut Vec<Timed<T>>,
        partition: &mut PartitionTime,
        _: &mut Context,
    ) -> Result<(), Failure> {
        output.extend(input.drain(..).map(|value| {
            let time = (self.0)(&value);
            let watermark = partition.pass(time);
            Timed {
                time,
                watermark,
                value,
            }
        }));
        Ok(())
    }
}

struct ByClock;

impl<T: Data> Assign<Vec<T>, Vec<Timed<T>>> for ByClock {
    fn assign(
        &mut self,
        input: &mut Vec<T>,
        output: &mut Vec<Timed<T>>,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let time = cx.now();
        output.extend(input.drain(..).map(|value| Timed {
            time,
            watermark: partition.pass(time),
            value,
        }));
        Ok(())
    }
}

impl<T: Data> Stream<T> {
    /// Adds to each item the time that `f` returns for it, in nanoseconds since an epoch of the caller's
    /// choice. Event time follows these times.
    ///
    /// `how` has the lateness that is allowed, and when a silent partition is idle. The step must come before
    /// the first exchange or merge.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::TimeMisplaced`] when an exchange
    /// or merge is before it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("times"), testing::Collected::new());
    /// flow.source("in", testing::items([10i64, 30, 20]))
    ///     .event_time(|n| *n, EventTime::default().lateness(Duration::from_nanos(5)))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// let watermarks: Vec<_> = out.take().iter().map(|item| item.watermark).collect();
    /// assert_eq!(watermarks, [5, 25, 25]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn event_time(
        &self,
        f: impl Fn(&T) -> i64 + Send + Sync + 'static,
        how: EventTime,
    ) -> Stream<Timed<T>> {
        lock(&self.graph).codecs.derive(timed::<T>);
        let f = Arc::new(f);
        self.assigned("", TimeSource::Event(how), move |_| {
            Ok(ByFunction(Arc::clone(&f)))
        })
    }

    /// Adds to each item the time at which it is read, in nanoseconds since 1970, by the clock of the run.
    /// Time also advances where no items come.
    ///
    /// The step must come before the first exchange or merge.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::TimeMisplaced`] when an exchange
    /// or merge is before it.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("times"), testing::Collected::new());
    /// flow.source("in", testing::items([1])).processing_time().sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// let read = out.take();
    /// assert_eq!(read[0].value, 1);
    /// assert!(read[0].time > 0);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn processing_time(&self) -> Stream<Timed<T>> {
        lock(&self.graph).codecs.derive(timed::<T>);
        self.assigned("", TimeSource::Processing, |_| Ok(ByClock))
    }
}
