//! Suspending an unused queue: it frees disk space and descriptors.

use super::{Log, Queue};
use crate::moment::Moment;

/// A queue that was not used for this time is suspended. Its next use opens the log again.
const REST_AFTER_US: u64 = 5_000_000;
/// A queue that has nothing on disk is forgotten after this time.
const FORGET_AFTER_US: u64 = 1_000_000;
/// One that has refused items is kept for this time, so that its figures say so.
const FORGET_REFUSALS_AFTER_US: u64 = 300_000_000;

impl<L: Log> Queue<L> {
    /// The time at which the queue is suspended, if it is not used before.
    pub(crate) fn suspend_due(&self) -> Option<u64> {
        if self.log.is_being_created() {
            return None;
        }
        if !self.log.exists() {
            let after_us = match self.refusals {
                None => FORGET_AFTER_US,
                Some(_) => FORGET_REFUSALS_AFTER_US,
            };
            return self
                .is_unused()
                .then(|| self.last_used_us.saturating_add(after_us));
        }
        self.can_suspend()
            .then(|| self.last_used_us.saturating_add(REST_AFTER_US))
    }

    /// Whether the queue can be forgotten without a loss. A fan-out queue is kept: it must get copies.
    pub(crate) fn is_forgettable(&self) -> bool {
        !self.log.exists() && !self.log.is_being_created() && self.is_unused()
    }

    fn is_unused(&self) -> bool {
        self.items == 0
            && self.opens.is_empty()
            && self.waiters.is_empty()
            && crate::name::parent(&self.name).is_none()
    }

    /// Whether the log is open and can be closed.
    pub(crate) fn can_suspend(&self) -> bool {
        !self.log.is_suspended() && self.sync_due().is_none()
    }

    /// The time of the last use, on the steady clock.
    pub(crate) fn last_used_us(&self) -> u64 {
        self.last_used_us
    }

    /// Frees disk space and closes the log.
    pub(crate) fn suspend(&mut self, now: Moment) {
        self.expire_ids(now.steady_us);
        self.prune_all();
        if !self.log.suspend() {
            // The log is being synced, or has failed: try again later.
            self.last_used_us = now.steady_us;
        }
    }
}
