//! The context of one worker of a run, beyond the context of its steps: the accounting of the current batch,
//! the partitions of the running source, the checkpoint and the pace.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use timely::scheduling::Activator;

use crate::checkpoint::WorkerCheckpoint;
use crate::clock::{Clock, now_ns};
use crate::control::in_flight::Slow;
use crate::control::{Control, Epochs, Lifecycle, Load, Phase};
use crate::dataflow::pace::Pace;
use crate::metrics::StepMetrics;
use crate::metrics::figures::Figures;
use crate::node::NodeId;
use crate::step::Context;
use crate::time::{BEFORE_ALL, NEVER};

/// How far a worker has read each source, by its node.
#[derive(Default)]
pub(crate) struct Reading(HashMap<NodeId, Read>);

#[derive(Default)]
struct Read {
    /// Its event time; `None` before the first, or if its items have none.
    time: Option<i64>,
    /// Whether its last turn gave items.
    delivers: bool,
}

impl Reading {
    /// The event time of a source has advanced to `time`.
    pub(crate) fn advance(&mut self, source: NodeId, time: i64) {
        self.0.entry(source).or_default().time = (time != BEFORE_ALL).then_some(time);
    }

    /// A source was read, and gave items or none.
    pub(crate) fn note(&mut self, source: NodeId, delivers: bool) {
        self.0.entry(source).or_default().delivers = delivers;
    }

    /// Whether a source is ahead in event time of one of the `others`, which has more items.
    pub(crate) fn is_ahead(&self, source: NodeId, others: &[NodeId]) -> bool {
        let time = |source: &NodeId| self.0.get(source).and_then(|read| read.time);
        let Some(own) = time(&source) else {
            return false;
        };
        let mut delivering = others
            .iter()
            .filter(|other| self.0.get(other).is_some_and(|read| read.delivers));
        delivering.any(|other| time(other).is_some_and(|other| other < own))
    }
}

/// A worker's context: that of its steps, and the parts that only the run uses.
pub struct WorkerContext {
    /// The context of the steps.
    pub(crate) step: Context,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) load: Arc<Load>,
    pub(crate) figures: Arc<Figures>,
    /// The time at which the last step ended; nanoseconds of the engine's clock.
    pub(crate) last: u64,
    /// How far this worker has read its sources.
    pub(crate) reading: Reading,
    /// Counts batches: a worker with new activity wakes the others.
    pub(crate) activity: u64,
    /// The partition from which the current batch was read.
    pub(crate) partition: usize,
    /// The partitions of the running source that have not ended.
    pub(crate) live: Vec<usize>,
    /// The numbers and names of the partitions that the running source has found during the run.
    pub(crate) found: Vec<(usize, String)>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Counts the publications of this worker: steps and sources note for each of them what only they know.
    pub(crate) publication: u32,
    /// Whether they have had a turn for it, after which it is due.
    pub(crate) publishes: bool,
    /// The operators with inputs from others, which have that turn.
    pub(crate) arrivals: Vec<Activator>,
    /// True if turns are not bounded by time, so that a replay and a trial are the same in each run.
    pub(crate) unbounded: bool,
    /// The arrivals of this worker that are slow, by their nodes.
    slow: Vec<(usize, Slow)>,
    /// Whether this worker has published its pace.
    published_pace: bool,
    /// The worker's parts of epochs, in a run with epochs.
    pub(crate) checkpoint: Option<WorkerCheckpoint>,
}

impl Deref for WorkerContext {
    type Target = Context;
    fn deref(&self) -> &Context {
        &self.step
    }
}

impl DerefMut for WorkerContext {
    fn deref_mut(&mut self) -> &mut Context {
        &mut self.step
    }
}

impl WorkerContext {
    pub(crate) fn new(
        place: (usize, usize),
        metrics: Vec<StepMetrics>,
        clock: Arc<dyn Clock>,
        control: Arc<Control>,
    ) -> Self {
        WorkerContext {
            life: Arc::clone(&control.life),
            epochs: Arc::clone(&control.epochs),
            load: Arc::clone(&control.load),
            figures: Arc::clone(&control.figures),
            step: Context::new(place, metrics, control),
            last: 0,
            reading: Reading::default(),
            activity: 0,
            partition: 0,
            live: Vec::new(),
            found: Vec::new(),
            clock,
            publication: 0,
            publishes: false,
            arrivals: Vec::new(),
            unbounded: false,
            slow: Vec::new(),
            published_pace: false,
            checkpoint: None,
        }
    }

    /// Adds the checkpoint of a run with epochs.
    pub(crate) fn with_checkpoint(mut self, checkpoint: WorkerCheckpoint) -> Self {
        self.now = checkpoint.resume.processing_ns;
        self.first_epoch = Some(checkpoint.resume.epoch + 1);
        self.unbounded |= checkpoint.resume.lockstep;
        self.checkpoint = Some(checkpoint);
        self
    }

    /// True if at most one batch of a source belongs to an epoch.
    pub(crate) fn lockstep(&self) -> bool {
        let lockstep = |checkpoint: &WorkerCheckpoint| checkpoint.resume.lockstep;
        self.checkpoint.as_ref().is_some_and(lockstep)
    }

    /// Publishes the pace of this worker to senders, after a turn of the arrival at `node`.
    pub(crate) fn publish_pace(&mut self, node: usize, pace: &Pace) {
        let known = self.slow.iter().position(|(of, _)| *of == node);
        match (pace.slow(), known) {
            (None, None) if self.published_pace => return,
            (None, None) => {}
            (None, Some(at)) => drop(self.slow.remove(at)),
            (Some(slow), Some(at)) => self.slow[at].1 = slow,
            (Some(slow), None) => self.slow.push((node, slow)),
        }
        self.published_pace = true;
        let slow = self.slow.iter().map(|(_, slow)| *slow);
        let least = slow.reduce(|one, other| Slow {
            turn: one.turn.min(other.turn),
            in_flight: one.in_flight.min(other.in_flight),
        });
        self.load.set_slow(self.worker, least);
    }

    /// True if the run ends before its input: the next start resumes it.
    pub(crate) fn suspended(&self) -> bool {
        self.checkpoint.is_some() && self.epochs.phase() == Phase::Suspended
    }

    /// Returns the number of an epoch of this run among all epochs of the flow.
    pub(crate) fn epoch_number(&self, epoch: u64) -> u64 {
        let before = self
            .checkpoint
            .as_ref()
            .map_or(0, |checkpoint| checkpoint.resume.epoch);
        before + 1 + epoch
    }

    /// Begins a turn of an operator that uses processing time.
    pub(crate) fn read_clock(&mut self) {
        self.step.now = self.step.now.max(self.clock.time_ns());
        self.deadline = NEVER;
    }

    /// Begins the accounting of a batch that was complete at `stamp`.
    pub(crate) fn begin(&mut self, stamp: u64, now: u64) {
        self.stamp = stamp;
        self.last = now;
        self.activity += 1;
    }

    /// Records the work of a step on a batch, with one clock read.
    pub(crate) fn record(&mut self, node: usize, items_in: usize, items_out: usize) {
        let now = now_ns();
        let step = &mut self.step.metrics[node];
        step.items_in += items_in as u64;
        step.items_out += items_out as u64;
        step.batches += 1;
        step.busy_ns += now.saturating_sub(self.last);
        let age = now.saturating_sub(self.step.stamp).max(1);
        step.latency_ns.saturating_record_n(age, items_in as u64);
        self.last = now;
    }
}
