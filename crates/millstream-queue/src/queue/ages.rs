//! How long items have waited: the values to alert on.
//!
//! The age of the last served item does not change while no consumer takes anything. The ages here are those of items
//! that are still in the queue: they grow until the items are taken or confirmed.

use super::{Log, Queue};
use crate::moment::Moment;
use crate::storage::operation::{Head, Operation};

/// The items that were delivered and requeued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) items: u64,
    /// The highest number of deliveries of one item.
    pub(crate) deliveries_max: u64,
    /// The time since the first failure of all.
    pub(crate) first_failure_age_ms: u64,
}

impl<L: Log> Queue<L> {
    /// The age in milliseconds of the oldest item that is ready or in the backlog; 0 if there is none. Delayed items
    /// do not count yet. An item whose record cannot be read does not count.
    pub(crate) fn oldest_age_ms(&mut self, now: Moment) -> u64 {
        let ready = self.ready.range(0).next().map(|item| item.added_ms);
        // The backlog is younger than everything in the FIFO.
        let backlog = if self.ready.fifo_is_empty() {
            self.first_backlog_added_ms()
        } else {
            None
        };
        let oldest = ready.into_iter().chain(backlog).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// Whether items wait here to move on to another queue, and no consumer is wanted: none was taken since the server
    /// started, and the next one will expire by its own time, or others have moved on by that of the queue.
    #[cfg(feature = "server")]
    pub(crate) fn is_delay(&self) -> bool {
        let counters = &self.counters;
        let retired = counters.expired_items + counters.failed_items + counters.discarded;
        let there = self.items + self.opens.len() as u64;
        let next = self.ready.range(0).next();
        self.settings.expire_to.is_some()
            && counters.total_items <= retired + there
            && match self.settings.max_age {
                None => next.is_some_and(|item| item.expiry_ms != 0),
                Some(_) => counters.expired_moved > 0,
            }
    }

    /// The age in milliseconds of the oldest open item; 0 if there is none.
    pub(crate) fn oldest_open_age_ms(&self, now: Moment) -> u64 {
        let oldest = self.opens.values().map(|open| open.item.added_ms).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// The items that were delivered and requeued, open ones included.
    pub(crate) fn failing(&self, now: Moment) -> Failing {
        let opens = self.opens.values().map(|open| &open.item);
        let held = opens.chain(self.ready.returned());
        let held = held.map(|item| (item.deliveries, item.first_failed_ms()));
        let backlog = self.backlog.deliveries.values();
        let backlog = backlog.map(|known| (known.count, known.first_ms));
        let mut failing = Failing::default();
        for (count, first_ms) in held.chain(backlog).filter(|(count, _)| *count > 0) {
            failing.items += 1;
            failing.deliveries_max = failing.deliveries_max.max(u64::from(count));
            if first_ms != 0 {
                let age_ms = now.wall_ms.saturating_sub(first_ms);
                failing.first_failure_age_ms = failing.first_failure_age_ms.max(age_ms);
            }
        }
        failing
    }

    /// The time at which the first item of the backlog was added. Records before it that are not items are skipped
    /// once, so that the log of an unused queue is not read again.
    pub(super) fn first_backlog_added_ms(&mut self) -> Option<u64> {
        if let Some((position, added_ms)) = self.backlog.oldest
            && self.backlog.items > 0
            && position == self.backlog.position
            && !self.backlog.removed.contains(position)
        {
            return Some(added_ms);
        }
        while self.backlog.items > 0 {
            let position = self.backlog.position;
            let record = self.log.read(position).ok()?;
            let head = Operation::decode(record).ok()?.head_of_ready();
            let head = head.filter(|_| !self.backlog.removed.contains(position));
            if let Some(Head { added_ms, .. }) = head {
                self.backlog.oldest = Some((position, added_ms));
                return Some(added_ms);
            }
            self.backlog.position += 1;
            self.backlog.forget_before_position();
        }
        None
    }
}
