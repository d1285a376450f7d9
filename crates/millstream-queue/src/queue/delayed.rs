//! Delayed items. They are in the log only; here are their ids.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Delayed {
    by_time: BTreeSet<(u64, u64)>,
    by_id: BTreeMap<u64, u64>,
}

impl Delayed {
    /// The item is delayed until then, and no longer until the time that was known before.
    pub(super) fn insert(&mut self, id: u64, due_ms: u64) {
        if let Some(before) = self.by_id.insert(id, due_ms) {
            self.by_time.remove(&(before, id));
        }
        self.by_time.insert((due_ms, id));
    }

    /// Returns whether the item was delayed.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let due_ms = self.by_id.remove(&id);
        due_ms.is_some_and(|due_ms| self.by_time.remove(&(due_ms, id)))
    }

    /// The end of the delay of an item, on the wall clock.
    pub(super) fn due_ms(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).copied()
    }

    /// The first delay to end, and its item.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.by_time.first().copied()
    }

    /// The ids from this one on, in order.
    pub(super) fn range(&self, from: u64) -> impl Iterator<Item = u64> {
        self.by_id.range(from..).map(|(&id, _)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}
