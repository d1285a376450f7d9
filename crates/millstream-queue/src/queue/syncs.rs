//! When the changes of a queue must be durable, and the syncs that make them so.

use std::ops::Range;

use super::unsynced::Unsynced;
use super::{Log, Queue};
use crate::config::Sync;
use crate::error::QueueError;
use crate::moment::Moment;

impl<L: Log> Queue<L> {
    /// The time at which the sync policy requires that the oldest change is durable.
    #[inline]
    pub(crate) fn sync_due(&self) -> Option<u64> {
        let Sync::Every(every) = self.settings.sync else {
            return None;
        };
        let oldest_us = self.unsynced.oldest_us(&self.not_durable());
        oldest_us.map(|oldest_us| oldest_us.saturating_add(every.as_micros() as u64))
    }

    /// Whether a sync is due that has not begun: then it begins, and the caller syncs [a handle](Self::syncing).
    pub(crate) fn begin_sync_if_due(&mut self, now: Moment) -> bool {
        let changes = self.not_durable();
        let is_due = self
            .sync_due()
            .is_some_and(|due_us| due_us <= now.steady_us);
        is_due && self.unsynced.begin(&changes, now)
    }

    #[inline]
    pub(super) fn not_durable(&self) -> Range<u64> {
        self.log.durable()..self.log.next()
    }

    /// The sync that was begun has failed: the log takes no more records, so that there is nothing to sync.
    pub(crate) fn sync_failed(&mut self) {
        self.unsynced = Unsynced::default();
        self.refusals
            .get_or_insert_default()
            .add_failed_sync(&self.name);
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&mut self) -> Result<(), QueueError> {
        // Also after a failure there is nothing to sync.
        self.unsynced = Unsynced::default();
        self.log.sync().map_err(|cause| self.fault(cause))
    }

    /// Makes all changes durable that an earlier process has left, where the log is closed: a handle syncs an open one
    /// only.
    #[cold]
    pub(crate) fn sync_closed(&mut self) -> Result<(), QueueError> {
        if self.log.is_suspended() && self.log.durable() < self.log.next() {
            self.sync()
        } else {
            Ok(())
        }
    }

    /// A handle that makes all changes durable, from any thread.
    pub(crate) fn syncing(&self) -> L::Syncing {
        self.log.syncing()
    }
}
