//! The next number of each source of numbered items.
//!
//! The invariant: the record at `position` has the number `next`, and no later record has another number of that
//! source.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct SourcePositions(BTreeMap<u64, SourcePosition>);

#[derive(Clone, Copy, Debug)]
struct SourcePosition {
    next: u64,
    /// The position of the record with this number.
    position: u64,
}

impl SourcePositions {
    /// All items of `source` before `next` are in the queue.
    pub(super) fn set(&mut self, source: u64, next: u64, position: u64) {
        self.0.insert(source, SourcePosition { next, position });
    }

    /// The number of the next item of `source`.
    pub(super) fn next(&self, source: u64) -> u64 {
        self.0.get(&source).map_or(0, |known| known.next)
    }

    /// Each source with its next number.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&source, known)| (source, known.next))
    }

    /// A source whose number is in a record before `position`: source, next number, position of the record.
    pub(super) fn before(&self, position: u64) -> Option<(u64, u64, u64)> {
        let first = self.0.iter().min_by_key(|(_, known)| known.position)?;
        let (&source, known) = first;
        (known.position < position).then_some((source, known.next, known.position))
    }
}
