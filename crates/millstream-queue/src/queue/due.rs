//! Items whose delay is over, and which do not fit into memory: they are in the log only, until they are next.

use std::collections::{BTreeMap, BTreeSet};

use crate::moment::Moment;

/// Ids and expiries; 0 is never.
#[derive(Debug, Default)]
pub(super) struct Due {
    by_id: BTreeMap<u64, u64>,
    by_expiry: BTreeSet<(u64, u64)>,
}

impl Due {
    pub(super) fn insert(&mut self, id: u64, expiry_ms: u64) {
        self.by_id.insert(id, expiry_ms);
        if expiry_ms != 0 {
            self.by_expiry.insert((expiry_ms, id));
        }
    }

    /// Returns whether the item was here.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let expiry_ms = self.by_id.remove(&id);
        expiry_ms.is_some_and(|expiry_ms| {
            self.by_expiry.remove(&(expiry_ms, id));
            true
        })
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The item that is next.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        self.by_id.first_key_value().map(|(&id, _)| id)
    }

    /// The ids from this one on, in order.
    pub(super) fn range(&self, from: u64) -> impl Iterator<Item = u64> {
        self.by_id.range(from..).map(|(&id, _)| id)
    }

    /// The first expiry, on the wall clock.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.by_expiry.first().map(|&(expiry_ms, _)| expiry_ms)
    }

    /// An item that has expired.
    pub(super) fn expired(&self, now: Moment) -> Option<u64> {
        let &(expiry_ms, id) = self.by_expiry.first()?;
        (expiry_ms <= now.wall_ms).then_some(id)
    }
}
