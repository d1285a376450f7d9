//! A queue that is not used gives back what it does not need: the disk that its items took, descriptors, a thread.

use super::{Log, Queue};
use crate::config::Sync;
use crate::moment::Moment;

/// A queue that was not used for so long is closed, and opened again when it is used.
const REST_AFTER_US: u64 = 5_000_000;
/// A queue that was only asked for, and has nothing on the disk, is forgotten after this time.
const FORGET_AFTER_US: u64 = 1_000_000;

impl<L: Log> Queue<L> {
    /// When the queue is to give back what it does not need, if it is not used before.
    pub(crate) fn suspend_due(&self) -> Option<u64> {
        if !self.log.exists() {
            return self
                .is_unused()
                .then(|| self.last_used_us.saturating_add(FORGET_AFTER_US));
        }
        self.can_suspend()
            .then(|| self.last_used_us.saturating_add(REST_AFTER_US))
    }

    /// Whether nothing is lost when nobody remembers that the queue was asked for. A fan-out queue is remembered: it is to get copies.
    pub(crate) fn is_forgettable(&self) -> bool {
        !self.log.exists() && self.is_unused()
    }

    fn is_unused(&self) -> bool {
        self.items == 0
            && self.opens.is_empty()
            && self.waiters.is_empty()
            && crate::name::parent(&self.name).is_none()
    }

    /// Whether the log is open and could be closed.
    pub(crate) fn can_suspend(&self) -> bool {
        let waits_for_sync =
            matches!(self.settings.sync, Sync::Every(_)) && self.sync_due().is_some();
        !self.log.is_suspended() && !waits_for_sync
    }

    /// When it was used last, on the steady clock.
    pub(crate) fn last_used_us(&self) -> u64 {
        self.last_used_us
    }

    /// Give back what is not needed.
    pub(crate) fn suspend(&mut self, now: Moment) {
        self.prune_all();
        if !self.log.suspend() {
            // Somebody syncs it, or it has failed: not at once again.
            self.last_used_us = now.steady_us;
        }
    }
}
