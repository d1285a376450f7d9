//! The agenda maps moments to the keys whose timers are due, with at most a few entries for each key.
//!
//! An entry may be out of date: its key was removed, or has another timer by now. This is detected when its
//! moment comes, so that a moment which is postponed with every item costs nothing until then.
//!
//! Timers and joins have as many moments as entries: these are in a heap. Windows on a grid end for all their
//! keys at one moment: entries of one moment after the first are in a list, where adding an entry needs no
//! search among the others, and which is sorted once, when the moment comes.
//!
//! Keys of one moment come in the order of their ranks, which a restart does not change, as it changes their slots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A key: its rank among those of one moment, and its slot.
type Due = (u32, u32);

/// Moments, and the slots of the keys that have timers at them.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(i64, Due)>>,
    /// By moment, the keys that were added in sequence, except for the first.
    lists: BTreeMap<i64, Vec<Due>>,
    turn: Turn,
    /// The moment of the entry added last.
    last: Option<i64>,
    /// The number of entries of all lists.
    listed: usize,
}

/// The moment whose list is being processed, and its remaining keys in reverse order.
#[derive(Default)]
struct Turn {
    at: i64,
    slots: Vec<Due>,
}

impl Agenda {
    /// Adds a key. Where a moment has several, that of the least `rank` comes first.
    pub(super) fn add(&mut self, at: i64, rank: u32, slot: u32) {
        if self.last == Some(at) {
            self.lists.entry(at).or_default().push((rank, slot));
            self.listed += 1;
        } else {
            self.last = Some(at);
            self.heap.push(Reverse((at, (rank, slot))));
        }
    }

    /// Returns the earliest entry, if its moment is not after `until`: the moment and the slot. Entries that are
    /// added for a moment while its list is being processed come after those that were there.
    pub(super) fn pop_due(&mut self, until: i64) -> Option<(i64, u32)> {
        if let Some(at) = self.first_list()
            && at <= until
            && (self.turn.slots.is_empty() || at < self.turn.at)
        {
            self.begin_turn();
        }
        let single = self.heap.peek().map(|Reverse(entry)| *entry);
        let listed = self.turn.slots.last().map(|slot| (self.turn.at, *slot));
        let first = single.into_iter().chain(listed).min();
        let first = first.filter(|(at, _)| *at <= until)?;
        if listed == Some(first) {
            self.turn.slots.pop();
            self.listed -= 1;
        } else {
            self.heap.pop();
        }
        let (at, (_, slot)) = first;
        Some((at, slot))
    }

    /// Returns the moment of the earliest entry.
    pub(super) fn next(&self) -> Option<i64> {
        let single = self.heap.peek().map(|Reverse((at, _))| *at);
        let turn = (!self.turn.slots.is_empty()).then_some(self.turn.at);
        let moments = single.into_iter().chain(turn).chain(self.first_list());
        moments.min()
    }

    /// Drops entries that are out of date when they are the majority.
    pub(super) fn tidy(&mut self, keys: usize, holds: impl Fn(i64, u32) -> bool) {
        if self.entries() <= 2 * keys + 1024 {
            return;
        }
        self.heap
            .retain(|Reverse((at, (_, slot)))| holds(*at, *slot));
        let Turn { at, slots } = &mut self.turn;
        slots.retain(|(_, slot)| holds(*at, *slot));
        self.listed = slots.len();
        self.lists.retain(|at, slots| {
            slots.retain(|(_, slot)| holds(*at, *slot));
            self.listed += slots.len();
            !slots.is_empty()
        });
    }

    fn entries(&self) -> usize {
        self.heap.len() + self.listed
    }

    /// Returns the earliest moment of the lists that are not being processed.
    fn first_list(&self) -> Option<i64> {
        self.lists.first_key_value().map(|(at, _)| *at)
    }

    /// Begins to process the earliest list; an unfinished list is put back.
    #[cold]
    fn begin_turn(&mut self) {
        let Some((at, mut slots)) = self.lists.pop_first() else {
            return;
        };
        slots.sort_unstable_by(|a, b| b.cmp(a));
        let before = std::mem::replace(&mut self.turn, Turn { at, slots });
        if !before.slots.is_empty() {
            self.lists
                .entry(before.at)
                .or_default()
                .extend(before.slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds and takes entries at random, and compares the agenda with a heap.
    #[test]
    fn entries_are_ordered_by_moment_and_slot() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut draw = |below: u64| {
                state = state
                    .wrapping_mul(0x5851_F42D_4C95_7F2D)
                    .wrapping_add(seed | 1);
                (state >> 33) % below
            };
            let mut agenda = Agenda::default();
            let mut heap = BinaryHeap::new();
            for _ in 0..400 {
                let at = draw(6) as i64;
                let slot = draw(40) as u32;
                match draw(5) {
                    // Entries that are added for the moment being processed are distinguished below.
                    0..3 if at != agenda.turn.at => {
                        agenda.add(at, slot, slot);
                        heap.push(Reverse((at, slot)));
                    }
                    3 => {
                        let due = heap.peek().filter(|Reverse((first, _))| *first <= at);
                        let due = due.map(|Reverse(entry)| *entry);
                        assert_eq!(agenda.next(), heap.peek().map(|Reverse((at, _))| *at));
                        assert_eq!(agenda.pop_due(at), due, "seed {seed}");
                        due.and_then(|_| heap.pop());
                    }
                    _ => assert_eq!(agenda.entries(), heap.len(), "seed {seed}"),
                }
            }
        }
    }

    #[test]
    fn a_moment_in_progress_may_be_added_to_and_interrupted() {
        let mut agenda = Agenda::default();
        for (at, slot) in [(5, 3), (5, 1), (5, 2), (5, 6), (7, 0)] {
            agenda.add(at, slot, slot);
        }
        assert_eq!(agenda.pop_due(9), Some((5, 1)));
        agenda.add(5, 0, 0);
        agenda.add(5, 1, 1);
        assert_eq!(agenda.pop_due(4), None, "not before its moment");
        assert_eq!(agenda.pop_due(5), Some((5, 0)));
        assert_eq!(agenda.pop_due(5), Some((5, 2)));
        agenda.add(4, 9, 9);
        agenda.add(4, 8, 8);
        let rest: Vec<_> = std::iter::from_fn(|| agenda.pop_due(5)).collect();
        assert_eq!(rest, [(4, 8), (4, 9), (5, 1), (5, 3), (5, 6)]);
        agenda.add(5, 1, 1);
        assert_eq!(agenda.next(), Some(5));
        assert_eq!(agenda.pop_due(7), Some((5, 1)));
        assert_eq!(agenda.pop_due(7), Some((7, 0)));
        assert_eq!((agenda.pop_due(9), agenda.entries()), (None, 0));
    }

    #[test]
    fn keys_of_one_moment_come_by_their_ranks() {
        let mut agenda = Agenda::default();
        for (at, rank, slot) in [(5, 30, 0), (5, 10, 1), (5, 20, 2), (6, 1, 4), (5, 5, 3)] {
            agenda.add(at, rank, slot);
        }
        let slots: Vec<_> = std::iter::from_fn(|| agenda.pop_due(9)).collect();
        assert_eq!(slots, [(5, 3), (5, 1), (5, 2), (5, 0), (6, 4)]);
    }

    #[test]
    fn outdated_entries_are_dropped_when_they_are_the_majority() {
        let mut agenda = Agenda::default();
        for number in 0..4_000 {
            agenda.add(i64::from(number / 2 % 7), number, number);
        }
        assert_eq!(agenda.pop_due(0), Some((0, 0)));
        agenda.tidy(2_000, |_, _| false);
        assert_eq!(agenda.entries(), 3_999, "they may be a few for each key");
        agenda.tidy(1_000, |at, slot| at == 6 || slot == 7);
        assert_eq!(agenda.entries(), 571);
        assert_eq!(agenda.pop_due(9), Some((3, 7)));
        assert_eq!(agenda.pop_due(9), Some((6, 12)));
        assert_eq!(agenda.pop_due(9), Some((6, 13)));
    }
}
