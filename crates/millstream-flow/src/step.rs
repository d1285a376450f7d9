//! A step: what it does with a batch, and what it sees while it works.
//!
//! A step implements [`Step::apply`], and the other verbs where it needs them. A step that keeps state over epochs also
//! implements [`Stateful`], and returns itself from [`Step::stateful`].
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

use crate::error::{Failure, FlowError};
use crate::run::control::Control;
use crate::run::metrics::StepMetrics;
use crate::state::{Changes, Restore};
use crate::time::{BEFORE_ALL, NEVER};

/// What a step sees while it works: its worker, the times, its counters, and when it is to be woken.
pub struct Context {
    /// This worker's number, from 0.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// When the current batch was complete at its source; nanoseconds of the engine's clock.
    pub stamp: u64,
    /// Stop, failure and waits outside the engine, shared by all workers.
    pub control: Arc<Control>,
    /// The node at work.
    pub(crate) current: usize,
    pub(crate) metrics: Vec<StepMetrics>,
    pub(crate) floor: i64,
    pub(crate) now: i64,
    /// The next moment in processing time for which a step has asked in this turn.
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
            worker,
            workers,
            stamp: 0,
            control,
            current: 0,
            metrics,
            floor: NEVER,
            now: BEFORE_ALL,
            deadline: NEVER,
            first_epoch: None,
        }
    }

    /// The number of the running epoch among all epochs of the flow, after `ended` epochs of this run. There are no
    /// epochs without a state directory.
    #[must_use]
    pub fn epoch_after(&self, ended: u64) -> Option<u64> {
        self.first_epoch.map(|first| first + ended)
    }

    /// Processing time when this turn of the operator began; nanoseconds since 1970. It is read for
    /// steps that [keep time](Step::keeps_time), and never goes back.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.now
    }

    /// How far all others than the partition of the current batch let event time come. The watermark
    /// at an item is the lesser of this and the item's own.
    #[must_use]
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Asks for a [`Step::tick`] once processing time has come to `at`. It holds until the next tick,
    /// in which a step asks again for what it still waits for.
    pub fn wake_at(&mut self, at: i64) {
        self.deadline = self.deadline.min(at);
    }

    /// The name of the step at work.
    #[must_use]
    pub fn step_name(&self) -> String {
        self.metrics[self.current].name.clone()
    }

    /// Counts items of the current step that came too late.
    pub fn late(&mut self, items: usize) {
        self.metrics[self.current].late += items as u64;
    }

    /// Counts an item that step `node` passed over.
    pub(crate) fn skipped(&mut self, node: usize) {
        self.metrics[node].skipped += 1;
    }
}

/// A step of a flow, on one worker: batches in, batches out.
pub trait Step<I, O>: 'static {
    /// Works on `input` and appends to `output`.
    ///
    /// # Errors
    /// The failure that ends the flow; a step that may skip items does so itself.
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure>;
    /// Event time has come to `at`: no item before it is expected. Append what that brings about; the
    /// watermark itself goes on behind it.
    ///
    /// # Errors
    /// As for `apply`.
    fn watermark(&mut self, _at: i64, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// True for a step that goes by processing time and wants [`tick`](Step::tick).
    fn keeps_time(&self) -> bool {
        false
    }
    /// A turn of the operator begins, at the processing time [`Context::now`]: append what that brings
    /// about, and ask with [`Context::wake_at`] for the next moment.
    ///
    /// # Errors
    /// As for `apply`.
    fn tick(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// All input has been seen: append what is still to come.
    ///
    /// # Errors
    /// As for `apply`.
    fn end(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// All input of this run has been seen, and its last epoch is about to be saved: append what is emitted once, whether or
    /// not the flow resumes in another run. What [`end`](Self::end) appends later belongs to this run alone, and is
    /// not part of any state. Only called in a run with epochs.
    ///
    /// # Errors
    /// As for `apply`.
    fn drain(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
    /// The state of the step, if it keeps any over epochs.
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        None
    }
}

/// The state of a step, as a run with a state directory saves and restores it.
pub trait Stateful {
    /// An epoch ends: write the keys whose state has changed since the last one.
    ///
    /// # Errors
    /// A state that cannot be saved, with its key.
    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure>;
    /// A run with recovery begins: take up what was saved. Called once, before anything else; from then
    /// on changes are to be noted.
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
