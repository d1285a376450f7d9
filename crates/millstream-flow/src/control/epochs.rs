//! The epochs of a run with recovery: the one that sources read in, and the last ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use super::wakers::Wakers;

const ENDING: u8 = Phase::Ending as u8;
const SUSPENDED: u8 = Phase::Suspended as u8;

/// The phase of a run with recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The sources may have input.
    Running,
    /// All sources have ended: the steps emit their output at the end.
    Ending,
    /// The run was stopped before its end: the next start resumes it, and no step ends.
    Suspended,
}

/// The epochs of a run.
pub(crate) struct Epochs {
    /// The epoch of the sources; it stays 0 without recovery.
    epoch: AtomicU64,
    phase: AtomicU8,
    /// The sources with remaining input, of all workers; counted with recovery only.
    live_sources: AtomicUsize,
    /// Whether the run has a state directory.
    keeps_state: AtomicBool,
    /// Whether a commit of the running epoch was asked for.
    commit_asked: AtomicBool,
    /// The epoch of the output at the end of the flow; `u64::MAX` until it is known. Only with a state
    /// directory.
    last_epoch: AtomicU64,
    /// Whether a source has read anything in this run.
    has_input: AtomicBool,
    wakers: Arc<Wakers>,
}

impl Epochs {
    pub(crate) fn new(wakers: Arc<Wakers>) -> Self {
        Epochs {
            epoch: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Running as u8),
            live_sources: AtomicUsize::new(0),
            keeps_state: AtomicBool::new(false),
            commit_asked: AtomicBool::new(false),
            last_epoch: AtomicU64::new(u64::MAX),
            has_input: AtomicBool::new(false),
            wakers,
        }
    }

    /// Whether the run commits epochs to a state directory.
    pub(crate) fn keeps_state(&self) -> bool {
        self.keeps_state.load(Ordering::Relaxed)
    }

    pub(crate) fn keep_state(&self) {
        self.keeps_state.store(true, Ordering::Relaxed);
    }

    /// Asks for a commit now instead of at the end of the epoch's length.
    pub(super) fn ask_commit(&self) {
        self.commit_asked.store(true, Ordering::SeqCst);
    }

    /// Whether a commit was asked for; the request is taken.
    pub(crate) fn take_commit_request(&self) -> bool {
        self.commit_asked.swap(false, Ordering::SeqCst)
    }

    /// Returns the epoch of the sources.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Begins the next epoch.
    pub(crate) fn raise(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.wakers.signal_sources();
    }

    /// Lets all sources check the state of the run.
    pub(crate) fn signal_sources(&self) {
        self.wakers.signal_sources();
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            ENDING => Phase::Ending,
            SUSPENDED => Phase::Suspended,
            _ => Phase::Running,
        }
    }

    /// Enters a phase that decides whether the flow emits its output at the end: the first call counts.
    pub(super) fn enter(&self, phase: Phase) {
        let running = Phase::Running as u8;
        let order = Ordering::SeqCst;
        let fails = Ordering::SeqCst;
        let _ = self
            .phase
            .compare_exchange(running, phase as u8, order, fails);
    }

    pub(crate) fn source_begins(&self) {
        self.live_sources.fetch_add(1, Ordering::SeqCst);
    }

    /// One source has ended; the others check whether it was the last of all.
    pub(crate) fn source_ends(&self) {
        self.live_sources.fetch_sub(1, Ordering::SeqCst);
        self.wakers.signal_sources();
    }

    /// True if there is no input left and the run is still in its running phase.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase() == Phase::Running && self.live_sources.load(Ordering::SeqCst) == 0
    }

    /// Ends the flow at once, in a run without epochs.
    pub(crate) fn end(&self) {
        self.enter(Phase::Ending);
        self.wakers.signal_sources();
    }

    /// Ends the flow after the current epoch: its output at the end belongs to the next one. Called by the
    /// thread that raises epochs, while no epoch is in progress.
    pub(crate) fn end_after_epoch(&self) {
        self.last_epoch.store(self.epoch() + 1, Ordering::SeqCst);
        self.enter(Phase::Ending);
        self.raise();
    }

    /// Ends the run without ending the flow: no step emits its output at the end.
    pub(crate) fn suspend(&self) {
        self.enter(Phase::Suspended);
        self.wakers.signal_sources();
    }

    /// Whether `epoch` is the last before the output at the end.
    pub(crate) fn drains_in(&self, epoch: u64) -> bool {
        self.phase() == Phase::Ending
            && self.last_epoch.load(Ordering::SeqCst) == epoch.saturating_add(1)
    }

    /// Whether an operator in `epoch` may end now. At its end a flow has an epoch for the input, and one more
    /// for the output at the end.
    pub(crate) fn ends_in(&self, epoch: u64) -> bool {
        match self.phase() {
            Phase::Running => false,
            Phase::Suspended => true,
            Phase::Ending => !self.keeps_state() || self.last_epoch.load(Ordering::SeqCst) <= epoch,
        }
    }

    /// Records that a source has read input.
    pub(crate) fn note_input(&self) {
        self.has_input.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_input(&self) -> bool {
        self.has_input.load(Ordering::SeqCst)
    }
}
