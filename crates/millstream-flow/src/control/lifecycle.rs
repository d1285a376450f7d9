//! The lifecycle of a run: it runs, is asked to stop, fails, or is abandoned.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::epochs::{Epochs, Phase};
use super::remote::Notices;
use super::wakers::Wakers;
use crate::clock::now_ns;
use crate::cluster::Member;
use crate::error::{FlowError, chain};
use crate::metrics::failures::{Failures, Outcome};
use crate::mutex::lock;

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const ABORTED: u8 = 2;
const ABANDONED: u8 = 3;

/// The time for which a run that was asked to stop waits for calls in progress.
const CALLS: Duration = Duration::from_secs(1);

/// The time that a lost connection for data waits for the death of its process to be reported with its cause.
const CAUSE_NS: u64 = 1_000_000_000;
/// The interval at which it checks whether that was reported.
const CAUSE_TICK: Duration = Duration::from_millis(10);

/// Whether a run continues, and what ended it.
pub(crate) struct Lifecycle {
    state: AtomicU8,
    /// When the run was asked to stop, or has failed; 0 before.
    ends_ns: AtomicU64,
    failure: Mutex<Option<FlowError>>,
    /// The failure as text, which remains when the failure is taken.
    failure_text: OnceLock<String>,
    /// The last failures, in a run that is watched.
    failures: Option<Arc<Failures>>,
    /// Where notices go, in a run of several processes.
    notices: Option<Notices>,
    epochs: Arc<Epochs>,
    wakers: Arc<Wakers>,
}

impl Lifecycle {
    pub(super) fn new(
        failures: Option<Arc<Failures>>,
        notices: Option<Notices>,
        epochs: Arc<Epochs>,
        wakers: Arc<Wakers>,
    ) -> Self {
        Lifecycle {
            state: AtomicU8::new(RUNNING),
            ends_ns: AtomicU64::new(0),
            failure: Mutex::new(None),
            failure_text: OnceLock::new(),
            failures,
            notices,
            epochs,
            wakers,
        }
    }

    /// Where to send notices to other processes, once they have been met.
    pub(crate) fn member(&self) -> Option<&dyn Member> {
        self.notices.as_ref()?.member()
    }

    /// Asks the sources to end, on all processes of the run; the input read so far is processed and flushed.
    pub(crate) fn stop(&self) {
        if let Some(member) = self.member() {
            member.stop();
        }
        self.stop_here();
    }

    /// Asks the sources of this process to end.
    pub(crate) fn stop_here(&self) {
        self.note_end();
        self.epochs.enter(Phase::Suspended);
        let order = Ordering::SeqCst;
        let fails = Ordering::SeqCst;
        let _ = self.state.compare_exchange(RUNNING, DRAINING, order, fails);
        self.wakers.signal_sources();
    }

    /// True if the flow was asked to stop, or has failed.
    pub(crate) fn stopping(&self) -> bool {
        self.state.load(Ordering::Relaxed) != RUNNING
    }

    fn note_end(&self) {
        let order = Ordering::Relaxed;
        let _ = self.ends_ns.compare_exchange(0, now_ns(), order, order);
    }

    /// The time since the run was asked to stop, or has failed.
    pub(crate) fn ending(&self) -> Option<Duration> {
        let since_ns = Some(self.ends_ns.load(Ordering::Relaxed)).filter(|at| *at > 0)?;
        Some(Duration::from_nanos(now_ns().saturating_sub(since_ns)))
    }

    /// True if the flow has failed, or was abandoned.
    pub(crate) fn aborted(&self) -> bool {
        self.state.load(Ordering::Relaxed) >= ABORTED
    }

    /// True if the flow was abandoned.
    pub(crate) fn abandoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABANDONED
    }

    /// Ends the run without processing the items in its steps: each worker finishes its current item. Nothing
    /// more is committed; with a state directory the next start resumes from the last commit.
    pub(crate) fn abandon(&self) {
        self.note_end();
        self.epochs.enter(Phase::Suspended);
        let order = Ordering::SeqCst;
        let fails = Ordering::SeqCst;
        for from in [RUNNING, DRAINING] {
            let _ = self.state.compare_exchange(from, ABANDONED, order, fails);
        }
        self.wakers.signal_sources();
    }

    /// True if calls in progress are not waited for: the run has failed, or was asked to stop a second ago, and is then
    /// abandoned.
    pub(crate) fn leaves_calls(&self) -> bool {
        if !self.aborted() && self.ending().is_some_and(|time| time > CALLS) {
            self.abandon();
        }
        self.aborted()
    }

    /// Ends the run at once, on all processes; the first failure is reported.
    pub(crate) fn fail(&self, error: FlowError) {
        let cause = self.notices.as_ref().map(|_| chain(&error).to_string());
        if self.fail_here(error)
            && let (Some(member), Some(cause)) = (self.member(), cause)
        {
            member.failed(&cause);
        }
    }

    /// Ends the run on this process; true if it is the first failure.
    pub(crate) fn fail_here(&self, error: FlowError) -> bool {
        let mut first = false;
        // A failure after the run was abandoned is not reported.
        if !self.abandoned() {
            let mut failure = lock(&self.failure);
            first = failure.is_none();
            if let (true, Some(failures)) = (first, &self.failures) {
                match &error {
                    FlowError::Failed(failure) => failures.note(failure, Outcome::Failed),
                    error => failures.note_other(&chain(error).to_string()),
                }
            }
            self.note_end();
            if first {
                let _ = self.failure_text.set(chain(&error).to_string());
            }
            failure.get_or_insert(error);
            self.state.store(ABORTED, Ordering::SeqCst);
        }
        self.wakers.wake_all();
        first
    }

    /// Ends the run because the connection for data to a process is lost, if the death of that process is not reported
    /// with a better cause. A run that was asked to stop may lose connections: a process that drains for too long ends.
    pub(crate) fn link_lost(&self, process: usize, cause: &str) {
        let until = now_ns() + CAUSE_NS;
        while !self.aborted() && now_ns() < until {
            std::thread::park_timeout(CAUSE_TICK);
        }
        if !self.stopping() {
            let cause = cause.to_owned();
            self.fail(FlowError::Lost { process, cause });
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Returns the failure of the run as text, if it has failed.
    pub(crate) fn failure_text(&self) -> Option<&str> {
        self.failure_text.get().map(String::as_str)
    }

    pub(crate) fn take_failure(&self) -> Option<FlowError> {
        lock(&self.failure).take()
    }
}
