//! How a service runs, what it has done, and how it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millstream_journal::{Journal, Wait};

/// What happens to an input that does not fit its schema, or with which the component fails.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The service ends with the error.
    #[default]
    Fail,
    /// It is counted.
    Skip,
    /// It is counted and set aside in this journal.
    DeadLetter(Journal),
}

/// What a start does when the component makes other calls than are recorded: its rule has changed, or it does not
/// depend on its inputs alone. What is recorded stays in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDifference {
    /// The start fails with the first difference, unless [`accept_differences`](Settings::accept_differences) accepts
    /// it.
    #[default]
    Fail,
    /// A [warning](crate::Runner::warnings) has the first difference and their number.
    Warn,
    /// Calls are not compared.
    Recorded,
}

/// How a service runs.
#[derive(Clone)]
pub struct Settings {
    /// How it waits for input. With several inputs, `Block` backs off, as it cannot sleep on all of them.
    pub wait: Wait,
    /// What happens to an input that cannot be taken.
    pub on_error: OnError,
    /// Whether the state depends on earlier inputs. Then a start restores it: from a
    /// [snapshot](crate::Setup::snapshots), from the component's
    /// [own outputs](crate::Setup::rebuild_from), else by calling it with all inputs again. If false, it continues at once.
    pub rebuild: bool,
    /// Whether to skip records that were pruned before they were taken, or that a rebuild of the state needs. The
    /// service starts with the oldest existing records, and its state reflects only these.
    pub skip_pruned: bool,
    /// How many followers on other machines must have acknowledged the outputs: the service is never more than 256
    /// inputs ahead of them, and takes none after a start, and none after it has slept, before they have all outputs.
    /// It waits for them without a limit.
    pub followers: usize,
    /// What a start does when the component makes other calls, while its state is rebuilt, than it made before.
    pub on_difference: OnDifference,
    /// For how many inputs a start accepts other calls than are recorded, with [`OnDifference::Fail`]. At the last
    /// input, whose effects may not all be recorded, the calls from the first one on that differs are recorded after
    /// those that are there.
    pub accept_differences: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Wait::Block,
            on_error: OnError::Fail,
            rebuild: true,
            skip_pruned: false,
            followers: 0,
            on_difference: OnDifference::Fail,
            accept_differences: 0,
        }
    }
}

/// The counts of a runner since it was started, the rebuilding of state included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls of the component by records.
    pub calls: u64,
    /// Calls of the component by timers.
    pub ticks: u64,
    /// Records that were skipped.
    pub skipped: u64,
    /// Records that were set aside since then: not those that an earlier start has set aside.
    pub dead_letters: u64,
}

/// Stops a runner on another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The runner finishes the input that it is taking and returns.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}
