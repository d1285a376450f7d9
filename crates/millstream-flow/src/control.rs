//! The state that the threads of one run share, by its owners, and the view of it that sources, sinks and steps have.
//!
//! | part | what it knows |
//! |---|---|
//! | `Lifecycle` | whether the run continues, and what ended it |
//! | `Epochs` | the epoch of the sources, and which one is the last |
//! | `Load` | what is in flight to each worker, and why sources pause |
//! | `Figures` | what reports and views show |
//! | `Ends` | which threads have begun and ended |
//! | `Wakers` | how to wake the workers of this process |
//!
//! A part is shared by itself: its user holds the part and not the others.

mod ends;
mod epochs;
pub(crate) mod in_flight;
mod lifecycle;
mod load;
pub(crate) mod remote;
pub(crate) mod statuses;
mod wakers;
mod wrapper;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use ends::Ends;
pub(crate) use epochs::{Epochs, Phase};
pub(crate) use lifecycle::Lifecycle;
pub(crate) use load::Load;
pub(crate) use wakers::Wakers;
#[doc(hidden)] // For the other crates of Millstream.
pub use wrapper::Wrapper;

use crate::metrics::figures::Figures;
use remote::Others;

/// The time after which a run that was asked to stop names the step that it waits for.
const NAMED: Duration = Duration::from_millis(1500);

/// A run, as its connectors and steps see it.
pub struct Control {
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) load: Arc<Load>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) ends: Arc<Ends>,
    pub(crate) wakers: Arc<Wakers>,
    release: Option<Wrapper>,
    /// Whether the step that an end waits for was named.
    named: AtomicBool,
}

impl Control {
    /// The state of a run of one process that is not watched.
    pub(crate) fn new(workers: usize, release: Option<Wrapper>) -> Self {
        Control::of(Figures::new(0..workers), None, release)
    }

    /// The state of a run with the workers of `figures` in this process.
    pub(crate) fn of(figures: Figures, others: Option<Others>, release: Option<Wrapper>) -> Self {
        let local = figures.local();
        let wakers = Arc::new(Wakers::new(local.clone()));
        let epochs = Arc::new(Epochs::new(Arc::clone(&wakers)));
        let life = Arc::new(Lifecycle::new(
            figures.failures().cloned(),
            others.as_ref().map(Others::notices),
            Arc::clone(&epochs),
            Arc::clone(&wakers),
        ));
        let ends = Ends::new(local.len(), Arc::clone(&life), Arc::clone(&wakers));
        Control {
            life,
            epochs,
            load: Arc::new(Load::new(local, others, Arc::clone(&wakers))),
            figures: Arc::new(figures),
            ends: Arc::new(ends),
            wakers,
            release,
            named: AtomicBool::new(false),
        }
    }

    /// Asks the sources to end, on all processes of the run; the input read so far is processed and flushed.
    pub fn stop(&self) {
        self.life.stop();
    }

    /// True if the flow was asked to stop, or has failed.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.life.stopping()
    }

    /// True if the flow has failed, or was [abandoned](Self::abandon).
    #[must_use]
    pub fn aborted(&self) -> bool {
        self.life.aborted()
    }

    /// True if the flow was [abandoned](Self::abandon).
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn abandoned(&self) -> bool {
        self.life.abandoned()
    }

    /// Ends the run without processing the items in its steps: each worker finishes its current item. Nothing
    /// more is committed; with a state directory the next start resumes from the last commit.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn abandon(&self) {
        self.life.abandon();
    }

    /// Returns the failure of the run as text, if it has failed.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn failure_text(&self) -> Option<&str> {
        self.life.failure_text()
    }

    /// Runs `wait`, which may block, without the resources that the run holds during a step: a writer that
    /// waits for its receiver must not hold the interpreter of a Python flow.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn outside(&self, wait: &mut dyn FnMut()) {
        match &self.release {
            Some(release) => release(wait),
            None => wait(),
        }
    }

    /// Whether the run commits epochs to a state directory.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn keeps_state(&self) -> bool {
        self.epochs.keeps_state()
    }

    /// Asks for a commit now instead of at the end of the epoch's length; false if this process does not begin commits:
    /// it has no state directory, or another process does.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn commit_now(&self) -> bool {
        let begins = self.keeps_state() && self.load.local().start == 0 && !self.stopping();
        if begins {
            self.epochs.ask_commit();
        }
        begins
    }

    /// Returns the number of items in flight between operators, or read and not passed on.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unfinished(&self) -> usize {
        self.load.unfinished()
    }

    /// True if all workers have ended and everything committed is delivered; waits for that at most for `limit`.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn ended_within(&self, limit: Duration) -> bool {
        let ended = self.ends.wait(limit);
        if !ended && self.life.ending().is_some_and(|time| time > NAMED) {
            self.name_step();
        }
        ended
    }

    /// Logs the step that the end of the run waits for, once.
    fn name_step(&self) {
        let Some(step) = self.figures.inside() else {
            return;
        };
        if !self.named.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                step,
                "step \"{step}\": the end of the flow waits for the item or the call that it is in"
            );
        }
    }

    /// True if the calls of a step that are in progress are not waited for: the run has failed, or was asked to stop
    /// more than a second ago, and is then [abandoned](Self::abandon).
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn leaves_calls(&self, step: &str, calls: usize) -> bool {
        let was_aborted = self.aborted();
        let leaves = self.life.leaves_calls();
        if leaves && !was_aborted {
            let what = if self.keeps_state() {
                "the next start repeats what is not committed"
            } else {
                "their items are dropped"
            };
            tracing::warn!(
                step,
                "step \"{step}\": {calls} of its calls have not ended a second after the stop, and are abandoned: {what}"
            );
        }
        leaves
    }
}
