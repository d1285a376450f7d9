//! How long items have waited: what an operator alarms on.
//!
//! The age of the item served last stands still while no consumer takes anything. The ages here are those of items that are still in
//! the queue, so they grow until somebody takes or confirms them.

use super::{Log, Queue};
use crate::moment::Moment;
use crate::operation::Operation;

impl<L: Log> Queue<L> {
    /// The age in milliseconds of the oldest item that waits to be taken, since it was added; 0 if none waits. Delayed
    /// items do not wait yet. An item whose record cannot be read counts as none.
    pub(crate) fn oldest_age_ms(&mut self, now: Moment) -> u64 {
        let ready = self.ready.range(0).next().map(|item| item.added_ms);
        // What is behind came after everything in the line.
        let behind = if self.ready.line_is_empty() {
            self.first_behind_added_ms()
        } else {
            None
        };
        let oldest = ready.into_iter().chain(behind).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// The age in milliseconds of the oldest item that somebody has open, since it was added; 0 if none is open.
    pub(crate) fn oldest_open_age_ms(&self, now: Moment) -> u64 {
        let oldest = self.opens.values().map(|open| open.item.added_ms).min();
        oldest.map_or(0, |added_ms| now.wall_ms.saturating_sub(added_ms))
    }

    /// When the first item was added that is in the log only. Records before it that are no items are skipped once.
    fn first_behind_added_ms(&mut self) -> Option<u64> {
        while self.behind.items > 0 {
            let position = self.behind.position;
            let record = self.log.read(position).ok()?;
            let added_ms = match Operation::decode(record).ok()? {
                Operation::Add {
                    head, due_ms: 0, ..
                }
                | Operation::From { head, .. }
                    if !self.behind.gone.contains(position) =>
                {
                    Some(head.added_ms)
                }
                _ => None,
            };
            if added_ms.is_some() {
                return added_ms;
            }
            self.behind.position += 1;
            self.behind.gone.forget_before(self.behind.position);
        }
        None
    }
}
