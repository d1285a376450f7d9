//! The step: its operation on a batch, and the context in which it runs.
//!
//! A step implements [`Step::apply`], and other methods where it needs them. A step with state that outlives an
//! epoch also implements [`Stateful`], and returns itself from [`Step::stateful`].
//!
//! ```
//! use millstream_flow::step::{Context, Step};
//! use millstream_flow::{Failure, Flow, Options, testing};
//!
//! /// Drops items that are equal to the one before.
//! #[derive(Default)]
//! struct Changes(Option<u32>);
//!
//! impl Step<Vec<u32>, Vec<u32>> for Changes {
//!     fn apply(&mut self, input: &mut Vec<u32>, output: &mut Vec<u32>, _: &mut Context) -> Result<(), Failure> {
//!         output.extend(input.drain(..).filter(|item| self.0.replace(*item) != Some(*item)));
//!         Ok(())
//!     }
//! }
//!
//! let (flow, out) = (Flow::new("changes"), testing::Collected::new());
//! flow.source("numbers", testing::items([1, 1, 2, 2, 1]))
//!     .step("changes", "", |_| Ok(Changes::default()))
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [1, 2, 1]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::sync::Arc;

use crate::control::Control;
use crate::error::{Failure, FlowError};
use crate::key::{Place, Shards};
pub use crate::metrics::StateSize;
use crate::metrics::StepMetrics;
use crate::metrics::current::Current;
use crate::state::{Changes, Restore};
use crate::time::{BEFORE_ALL, NEVER};

/// The context of a running step: its worker, the times, its counters, and its next wake-up.
pub struct Context {
    /// This worker's number, from 0.
    pub worker: usize,
    /// The number of workers.
    pub workers: usize,
    /// The shards into which keys are divided.
    #[doc(hidden)] // For the other crates of Millstream.
    pub shards: Shards,
    /// The time at which the current batch was complete at its source; nanoseconds of the engine's clock.
    #[doc(hidden)] // For the other crates of Millstream.
    pub stamp: u64,
    /// Stop, failure and waits outside the engine, shared by all workers.
    #[doc(hidden)] // For the other crates of Millstream.
    pub control: Arc<Control>,
    /// The running node.
    current: usize,
    /// The number of the last turn.
    turn: u64,
    /// The running node and turn, for a view of the run.
    shown: Arc<Current>,
    pub(crate) metrics: Vec<StepMetrics>,
    pub(crate) floor: i64,
    pub(crate) now: i64,
    /// The earliest moment in processing time that a step has requested in this turn.
    pub(crate) deadline: i64,
    /// The number of the first epoch of this run, in a run with epochs.
    pub(crate) first_epoch: Option<u64>,
}

impl Context {
    pub(crate) fn new(
        (worker, workers): (usize, usize),
        metrics: Vec<StepMetrics>,
        control: Arc<Control>,
    ) -> Self {
        Context {
            shown: control.figures.current_of(worker),
            worker,
            workers,
            shards: Shards::default(),
            stamp: 0,
            control,
            current: 0,
            turn: 0,
            metrics,
            floor: NEVER,
            now: BEFORE_ALL,
            deadline: NEVER,
            first_epoch: None,
        }
    }

    /// Returns the number of the running epoch among all epochs of the flow, after `ended` epochs of this run.
    /// `None` without a state directory, because there are no epochs.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn epoch_after(&self, ended: u64) -> Option<u64> {
        self.first_epoch.map(|first| first + ended)
    }

    /// Returns the processing time at which this turn of the operator began; nanoseconds since 1970. It is read
    /// for steps that [use processing time](Step::keeps_time), and never decreases.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Returns the event time up to which all partitions except that of the current batch have advanced. The
    /// watermark at an item is the lesser of this and the item's own.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Requests a [`Step::tick`] when processing time has reached `at`. The request is valid until the next
    /// tick, in which a step requests the next one.
    pub fn wake_at(&mut self, at: i64) {
        self.deadline = self.deadline.min(at);
    }

    /// Begins to run a node.
    pub(crate) fn enter(&mut self, node: usize) {
        self.current = node;
        self.shown.set(node);
    }

    /// Begins a turn of an operator.
    pub(crate) fn turn_begins(&mut self) {
        self.turn += 1;
        self.shown.begin_turn(self.turn);
    }

    /// Ends a turn of an operator.
    pub(crate) fn turn_ends(&self) {
        self.shown.end_turn();
    }

    /// Returns the running node.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Returns this worker among all.
    pub(crate) fn place(&self) -> Place {
        Place {
            shards: self.shards,
            worker: self.worker,
            workers: self.workers,
        }
    }

    /// Returns the name of the running step.
    #[must_use]
    pub fn step_name(&self) -> String {
        self.metrics[self.current].name.clone()
    }

    /// Counts items of the current step that were too late.
    pub fn late(&mut self, items: usize) {
        self.metrics[self.current].late += items as u64;
    }

    /// Counts an item that step `node` skipped and passed on as a dead letter.
    pub(crate) fn dead_letter(&mut self, node: usize) {
        self.metrics[node].dead_letters += 1;
    }

    /// Counts an item that step `node` skipped.
    pub(crate) fn skipped(&mut self, node: usize) {
        self.metrics[node].skipped += 1;
    }
}

/// A step of a flow on one worker: batches in, batches out.
pub trait Step<I, O>: 'static {
    /// Processes `input` and appends the results to `output`.
    ///
    /// # Errors
    /// The failure that ends the flow; a step that may skip items does so itself.
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure>;
    /// Advances event time to `at`: no item before it is expected. Appends the resulting output; the watermark
    /// itself is passed on after it.
    ///
    /// # Errors
    /// As for `apply`.
    fn watermark(&mut self, _at: i64, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// True for a step that uses processing time and needs [`tick`](Step::tick).
    #[doc(hidden)] // For the other crates of Millstream.
    fn keeps_time(&self) -> bool {
        false
    }
    /// Begins a turn of the operator, at the processing time [`Context::now`]: appends the resulting output,
    /// and requests the next tick with [`Context::wake_at`].
    ///
    /// # Errors
    /// As for `apply`.
    fn tick(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// Appends the last output after all input.
    ///
    /// # Errors
    /// As for `apply`.
    fn end(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// Appends the output that is emitted once, after all input of this run, and before the last epoch is
    /// saved, whether or not the flow resumes in another run. The output that [`end`](Self::end) appends later
    /// belongs to this run alone, and is not part of any state. Only called in a run with epochs.
    ///
    /// # Errors
    /// As for `apply`.
    fn drain(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// Returns the state of the step, if it has state that outlives an epoch.
    #[doc(hidden)] // For the other crates of Millstream.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

/// The state of a step, as a run with a state directory saves and restores it.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Stateful {
    /// Returns the size of the state, where it is known without a search: it is asked for once a second while metrics
    /// are published.
    fn size(&self) -> Option<StateSize> {
        None
    }

    /// Writes the keys whose state has changed since the last epoch.
    ///
    /// # Errors
    /// A state that cannot be saved, with its key.
    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure>;
    /// Restores the saved state at the beginning of a run with recovery. Called once, before anything else;
    /// from then on changes must be recorded.
    ///
    /// # Errors
    /// A state that cannot be read, or is of a type that cannot be saved.
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError>;
}

/// A step made of one function on batches.
pub(crate) struct Each<F>(pub(crate) F);

impl<I: 'static, O: 'static, F> Step<I, O> for Each<F>
where
    F: FnMut(&mut I, &mut O, &mut Context) -> Result<(), Failure> + 'static,
{
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure> {
        (self.0)(input, output, cx)
    }
}
