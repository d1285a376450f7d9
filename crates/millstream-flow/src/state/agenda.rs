//! Which key waits for what moment: a heap with at most a few entries for each key.
//!
//! An entry may be out of date: the key has gone, or waits for something else by now. That is seen when
//! its moment comes, so that a moment which moves on with every item costs nothing until then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Moments, and the slots of the keys that wait for them.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(i64, u32)>>,
}

impl Agenda {
    pub(super) fn add(&mut self, at: i64, slot: u32) {
        self.heap.push(Reverse((at, slot)));
    }

    /// The earliest entry, if its moment is not after `until`; equal moments by slot.
    pub(super) fn pop_due(&mut self, until: i64) -> Option<(i64, u32)> {
        let Reverse(first) = *self.heap.peek()?;
        (first.0 <= until).then(|| {
            self.heap.pop();
            first
        })
    }

    /// The moment of the earliest entry.
    pub(super) fn next(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Drops entries that are out of date once they are most of all.
    pub(super) fn tidy(&mut self, keys: usize, holds: impl Fn(i64, u32) -> bool) {
        if self.heap.len() > 2 * keys + 1024 {
            self.heap.retain(|Reverse((at, slot))| holds(*at, *slot));
        }
    }
}
