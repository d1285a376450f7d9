//! How far numbered items have come, for each source of such items.
//!
//! The invariant: the record at the position of a mark says that mark, and no record behind it says another of that source.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct SourcePositions(BTreeMap<u64, SourcePosition>);

#[derive(Clone, Copy, Debug)]
struct SourcePosition {
    next: u64,
    /// Of the record that says so.
    position: u64,
}

impl SourcePositions {
    /// All items of `source` before `take_next` have come.
    pub(super) fn set(&mut self, source: u64, next: u64, position: u64) {
        self.0.insert(source, SourcePosition { next, position });
    }

    /// The number of the next item of `source`.
    pub(super) fn next(&self, source: u64) -> u64 {
        self.0.get(&source).map_or(0, |known| known.next)
    }

    /// A mark that a record before `position` says: source, next, position of the record.
    pub(super) fn before(&self, position: u64) -> Option<(u64, u64, u64)> {
        let first = self.0.iter().min_by_key(|(_, known)| known.position)?;
        let (&source, known) = first;
        (known.position < position).then_some((source, known.next, known.position))
    }
}
