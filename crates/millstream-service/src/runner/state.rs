//! The runner: a component, its inputs and timers, and the position of each.

use std::time::Duration;

use millstream_journal::Host;
use millstream_wire::Lineage;

use super::following::Following;
use super::needs::Needs;
use super::output::Output;
use super::replay::Replay;
use crate::error::ServiceError;
use crate::inputs::inlet::Inlet;
use crate::outputs::progress::{Progress, StopCheck};
use crate::queries::Asked;
use crate::recorded::schedule::{InputPosition, Schedule};
use crate::recorded::snapshot::{Snapshots, Snapshotter};
use crate::settings::{Report, Settings};
use crate::timers::{Timer, Wall};

/// The number of the output journal among the inputs: its calls have no effects.
pub(super) const OWN: u32 = u32::MAX - 1;
/// The number of an input that the service no longer has.
pub(super) const GONE: u32 = u32::MAX - 2;
/// The longest wait of a runner before it checks whether it must stop.
pub(super) const STOP_CHECK: Duration = Duration::from_millis(50);

/// A service that runs.
pub struct Runner<C> {
    pub(super) component: C,
    pub(super) inlets: Vec<Inlet<C>>,
    pub(super) timers: Vec<Timer<C>>,
    pub(super) renamed: Vec<(String, String)>,
    /// The record of the order in which several inputs and timers are taken, and of the position of each.
    pub(super) schedule: Option<Schedule>,
    pub(super) progress: Progress,
    pub(super) settings: Settings,
    /// Whether an input is made durable before the component is called with it.
    pub(super) durable: bool,
    pub(super) following: Option<Following>,
    pub(super) host: Host,
    /// The clock of the machine, for timers.
    pub(super) wall: Wall,
    pub(super) output: Option<Output>,
    /// The component's own outputs, until its state has been rebuilt from them.
    pub(super) own: Option<Inlet<C>>,
    pub(super) snapshotter: Option<Snapshotter<C>>,
    pub(super) snapshots: Option<Snapshots>,
    pub(super) needs: Needs,
    /// The last announcement, and its time.
    pub(super) announced: Vec<InputPosition>,
    pub(super) announced_at: Duration,
    /// The positions in the inputs at the last snapshot.
    pub(super) last_snapshot: Option<Vec<u64>>,
    /// What is wrong with the snapshot, if it cannot be read.
    pub(super) unreadable: Option<String>,
    /// Inputs that the service had before.
    pub(super) gone: Vec<InputPosition>,
    /// Warnings of the start.
    pub(super) warnings: Vec<String>,
    /// The recorded order, when this is a replay.
    pub(super) replay: Option<Replay>,
    /// The questions to the component, and their answers; `None` without queries.
    pub(super) questions: Option<Asked<C>>,
    /// How often a spinning runner has found no input.
    pub(super) spins: u32,
    /// Whether a stop is requested while the state is rebuilt.
    pub(super) asked: Option<StopCheck>,
}

impl<C> Drop for Runner<C> {
    fn drop(&mut self) {
        // A clock that outlives the service keeps no journal open, and a publisher that does writes nothing.
        self.progress.current.forget_inputs();
        self.progress.current.close();
    }
}

impl<C> Runner<C> {
    /// The timer that was recorded under this name.
    pub(super) fn timer_named(&self, name: &str) -> Option<usize> {
        let named = |name: &str| self.timers.iter().position(|timer| timer.name == name);
        let renamed = || {
            let new = self.renamed.iter().find(|(old, _)| old == name);
            new.and_then(|(_, new)| named(new))
        };
        named(name).or_else(renamed)
    }

    /// Checks that the component has not published while it was not called.
    pub(super) fn check_silence(&self) -> Result<(), ServiceError> {
        let output = self.output.as_ref().map(|output| &output.journal);
        self.progress.check_silence(output)
    }

    /// Warnings of the start, a sentence each: an input that may only be read, so that no cursor protects its records
    /// from pruning; ticks of a removed timer, which the state lacks; calls that differ from the recorded ones and were
    /// accepted.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn tick(
        &mut self,
        timer: usize,
        name: Option<&str>,
        lineage: Lineage,
        time_ns: i64,
    ) -> Result<(), ServiceError> {
        let Some(timer) = self.timers.get_mut(timer) else {
            return Ok(());
        };
        self.progress.begin(lineage, time_ns.max(0) as u64);
        if let Some(name) = name {
            self.progress.current.one_offs().cancel(&timer.name, name);
        }
        let called = timer.call(&mut self.component, name, self.progress.time_ns());
        let journal = self
            .schedule
            .as_ref()
            .map_or("timers", |schedule| &schedule.name);
        let ended = match called {
            Ok(()) => self.progress.end(journal, lineage.sequence, &[]),
            Err(cause) => self.progress.failed(journal, lineage.sequence, &[], cause),
        };
        self.progress.report.ticks += 1;
        self.progress.report.calls -= 1; // `end` has counted it as a record
        ended
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.progress.report
    }

    /// The component.
    pub fn component(&mut self) -> &mut C {
        &mut self.component
    }
}
