//! How long items have waited: what an operator alarms on.
//!
//! The age of the item served last stands still while no consumer takes anything. The ages here are those of items that are still in
//! the queue, so they grow until somebody takes or confirms them.

use super::{Log, Queue};
use crate::moment::Moment;
use crate::storage::operation::Operation;

/// What is known about items that were delivered and came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) items: u64,
    /// How often one of them came back, at most.
    pub(crate) deliveries_max: u64,
    /// How long ago the first of them first came back.
    pub(crate) first_failure_age_ms: u64,
}

impl<L: Log> Queue<L> {
    /// The age in milliseconds of the oldest item that waits to be taken, since it was added; 0 if none waits. Delayed
    /// items do not wait yet. An item whose record cannot be read counts as none.
    pub(crate) fn oldest_age_ms(&mut self, now: Moment) -> u64 {
        let ready = self.ready.range(0).next().map(|item| item.added_ms);
        // What is behind came after everything in the line.
        let backlog = if self.ready.fifo_is_empty() {
            self.first_backlog_added_ms()
        } else {
            None
        };
        let oldest = ready.into_iter().chain(backlog).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// The age in milliseconds of the oldest item that somebody has open, since it was added; 0 if none is open.
    pub(crate) fn oldest_open_age_ms(&self, now: Moment) -> u64 {
        let oldest = self.opens.values().map(|open| open.item.added_ms).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// The items of the queue that were delivered and came back, open ones too.
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

    /// When the first item was added that is in the log only. Records before it that are no items are skipped once, and the log of a queue that
    /// nobody uses is not read again.
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
            let added_ms = match Operation::decode(record).ok()? {
                Operation::Add {
                    head, due_ms: 0, ..
                }
                | Operation::From { head, .. }
                | Operation::Moved { head, .. }
                    if !self.backlog.removed.contains(position) =>
                {
                    Some(head.added_ms)
                }
                _ => None,
            };
            if let Some(added_ms) = added_ms {
                self.backlog.oldest = Some((position, added_ms));
                return Some(added_ms);
            }
            self.backlog.position += 1;
            self.backlog.removed.forget_before(self.backlog.position);
        }
        None
    }
}
