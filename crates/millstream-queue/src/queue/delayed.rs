//! Delayed items. They are in the log only; here are their ids.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Delayed {
    /// When there is something to do: the delay ends, or the item expires before that.
    by_time: BTreeSet<(u64, u64)>,
    by_id: BTreeMap<u64, Until>,
}

#[derive(Clone, Copy, Debug)]
struct Until {
    due_ms: u64,
    first_ms: u64,
}

impl Delayed {
    /// The item is delayed until `due_ms`, and no longer until the time that was known before. It expires at
    /// `expiry_ms`; 0 is never.
    pub(super) fn insert(&mut self, id: u64, due_ms: u64, expiry_ms: u64) {
        let first_ms = match expiry_ms {
            0 => due_ms,
            _ => due_ms.min(expiry_ms),
        };
        if let Some(before) = self.by_id.insert(id, Until { due_ms, first_ms }) {
            self.by_time.remove(&(before.first_ms, id));
        }
        self.by_time.insert((first_ms, id));
    }

    /// Returns whether the item was delayed.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let until = self.by_id.remove(&id);
        until.is_some_and(|until| self.by_time.remove(&(until.first_ms, id)))
    }

    /// The end of the delay of an item, on the wall clock.
    pub(super) fn due_ms(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id).map(|until| until.due_ms)
    }

    /// The first time at which a delay ends or a delayed item expires, and that item.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.by_time.first().copied()
    }

    /// The oldest item.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.by_id.first_key_value().map(|(&id, _)| id)
    }

    /// The ids from this one on, in order.
    pub(super) fn range(&self, from: u64) -> impl Iterator<Item = u64> {
        self.by_id.range(from..).map(|(&id, _)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}
