//! The state of compaction: where rewritten items are, and the progress of the current round.
//!
//! The invariant: `by_position` has exactly the positions in `positions`.

use std::collections::{BTreeMap, BTreeSet};

/// The positions of items that were rewritten at the end of the log.
#[derive(Debug, Default)]
pub(super) struct Relocations {
    positions: BTreeMap<u64, u64>,
    pub(super) by_position: BTreeSet<u64>,
    /// All live items with a smaller id are in `positions`.
    pub(super) below: u64,
    /// Records before this position must be durable before the former records of rewritten items are pruned.
    pub(super) needed: u64,
    /// The prune that waits for them.
    pub(super) deferred: Option<PrunePoint>,
}

/// Which records can be pruned, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PrunePoint {
    /// The records before this position can be pruned...
    pub(super) oldest: u64,
    /// ...once those before this one are durable.
    pub(super) needed: u64,
    /// The size of the log when this was found.
    pub(super) bytes: u64,
}

impl Relocations {
    /// The item `id` was rewritten at `position`.
    pub(super) fn insert(&mut self, id: u64, position: u64) {
        if let Some(former) = self.positions.insert(id, position) {
            self.by_position.remove(&former);
        }
        self.by_position.insert(position);
        self.needed = self.needed.max(position + 1);
    }

    /// The item `id` was removed.
    #[inline]
    pub(super) fn remove(&mut self, id: u64) {
        if let Some(position) = self.positions.remove(&id) {
            self.by_position.remove(&position);
        }
    }

    /// The position of the last record of an item.
    pub(super) fn position(&self, id: u64) -> u64 {
        self.positions.get(&id).copied().unwrap_or(id)
    }

    /// Forgets all other items.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.positions.retain(|id, _| is_kept(*id));
        self.by_position = self.positions.values().copied().collect();
    }

    /// Forgets the items that were last written before `from`.
    pub(super) fn flush(&mut self, from: u64) {
        self.positions.retain(|_, position| *position >= from);
        self.by_position = self.positions.values().copied().collect();
        self.below = from;
    }
}

/// When the log is inspected next, and the progress of rewriting old items.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    /// The log is inspected when it has this many records, or bytes.
    pub(super) due_records: u64,
    pub(super) due_bytes: u64,
    /// The current round: the ids from the first up to the second must still be rewritten.
    pub(super) round: Option<(u64, u64)>,
    /// The size of the log after the last round.
    pub(super) compacted_bytes: u64,
    /// How many times a part of the log was pruned.
    pub(super) rotations: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_found_where_it_was_rewritten_last() {
        let mut relocations = Relocations::default();
        relocations.insert(3, 10);
        relocations.insert(4, 11);
        relocations.insert(3, 20);
        assert_eq!(relocations.by_position, [11, 20].into());
        assert_eq!([3, 4, 5].map(|id| relocations.position(id)), [20, 11, 5]);
        assert_eq!(relocations.needed, 21);
        relocations.flush(15);
        assert_eq!(relocations.by_position, [20].into());
        assert_eq!((relocations.position(4), relocations.below), (4, 15));
        relocations.retain(|id| id != 3);
        assert!(relocations.by_position.is_empty());
        relocations.insert(6, 30);
        relocations.remove(6);
        relocations.remove(6);
        assert!(relocations.by_position.is_empty());
    }
}
