//! How far numbered items have come, for each source of such items.
//!
//! The invariant: the record at the position of a mark says that mark, and no record behind it says another of that source.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<u64, Mark>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    next: u64,
    /// Of the record that says so.
    position: u64,
}

impl Marks {
    /// All items of `source` before `next` have come.
    pub(super) fn set(&mut self, source: u64, next: u64, position: u64) {
        self.0.insert(source, Mark { next, position });
    }

    /// The number of the next item of `source`.
    pub(super) fn next(&self, source: u64) -> u64 {
        self.0.get(&source).map_or(0, |mark| mark.next)
    }

    /// A mark that a record before `position` says: source, next, position of the record.
    pub(super) fn before(&self, position: u64) -> Option<(u64, u64, u64)> {
        let first = self.0.iter().min_by_key(|(_, mark)| mark.position)?;
        let (&source, mark) = first;
        (mark.position < position).then_some((source, mark.next, mark.position))
    }
}
