//! Which key waits for what moment: a list of keys for each moment, with at most a few entries for each key.
//!
//! An entry may be out of date: the key has gone, or waits for something else by now. That is seen when
//! its moment comes, so that a moment which moves on with every item costs nothing until then.
//!
//! Windows on a grid end for all their keys at one moment. To note one more key there takes no search among
//! the others, and when the moment comes they are sorted once.

use std::collections::BTreeMap;

use smallvec::SmallVec;

/// Timers of many keys are at as many moments: a few slots have their place beside the moment.
type Slots = SmallVec<[u32; 4]>;

/// Moments, and the slots of the keys that wait for them.
#[derive(Default)]
pub(super) struct Agenda {
    moments: BTreeMap<i64, Slots>,
    turn: Turn,
    /// How many entries there are in all.
    entries: usize,
}

/// The moment whose keys have their turn, and the slots of those that have not had it, the last one first.
#[derive(Default)]
struct Turn {
    at: i64,
    slots: Slots,
}

impl Agenda {
    pub(super) fn add(&mut self, at: i64, slot: u32) {
        self.moments.entry(at).or_default().push(slot);
        self.entries += 1;
    }

    /// The earliest entry, if its moment is not after `until`; equal moments by slot. What is added for a moment while that has
    /// its turn comes behind those that were there.
    pub(super) fn pop_due(&mut self, until: i64) -> Option<(i64, u32)> {
        if self.next()? > until {
            return None;
        }
        if self.turn.slots.is_empty() || self.first() < Some(self.turn.at) {
            self.begin_turn();
        }
        let slot = self.turn.slots.pop()?;
        self.entries -= 1;
        Some((self.turn.at, slot))
    }

    /// The moment of the earliest entry.
    pub(super) fn next(&self) -> Option<i64> {
        let turn = (!self.turn.slots.is_empty()).then_some(self.turn.at);
        self.first().into_iter().chain(turn).min()
    }

    /// Drops entries that are out of date once they are most of all.
    pub(super) fn tidy(&mut self, keys: usize, holds: impl Fn(i64, u32) -> bool) {
        if self.entries <= 2 * keys + 1024 {
            return;
        }
        let Turn { at, slots } = &mut self.turn;
        slots.retain(|slot| holds(*at, *slot));
        self.entries = slots.len();
        self.moments.retain(|at, slots| {
            slots.retain(|slot| holds(*at, *slot));
            self.entries += slots.len();
            !slots.is_empty()
        });
    }

    /// The earliest moment that has not its turn.
    fn first(&self) -> Option<i64> {
        self.moments.first_key_value().map(|(at, _)| *at)
    }

    /// Gives the earliest moment its turn; the one that has it, if it is not done with, waits again.
    fn begin_turn(&mut self) {
        let Some((at, mut slots)) = self.moments.pop_first() else {
            return;
        };
        slots.sort_unstable_by(|a, b| b.cmp(a));
        let before = std::mem::replace(&mut self.turn, Turn { at, slots });
        if !before.slots.is_empty() {
            let waiting = self.moments.entry(before.at).or_default();
            waiting.extend(before.slots);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// Entries are added and taken at random, beside a heap.
    #[test]
    fn entries_come_by_moment_and_slot() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut draw = |below: u64| {
                state = state
                    .wrapping_mul(0x5851_F42D_4C95_7F2D)
                    .wrapping_add(seed | 1);
                (state >> 33) % below
            };
            let (mut agenda, mut heap) = (Agenda::default(), BinaryHeap::new());
            for _ in 0..400 {
                let (at, slot) = (draw(6) as i64, draw(40) as u32);
                match draw(5) {
                    // What is added for a moment that has its turn is told apart below.
                    0..3 if at != agenda.turn.at => {
                        agenda.add(at, slot);
                        heap.push(Reverse((at, slot)));
                    }
                    3 => {
                        let due = heap.peek().filter(|Reverse((first, _))| *first <= at);
                        let due = due.map(|Reverse(entry)| *entry);
                        assert_eq!(agenda.next(), heap.peek().map(|Reverse((at, _))| *at));
                        assert_eq!(agenda.pop_due(at), due, "seed {seed}");
                        due.and_then(|_| heap.pop());
                    }
                    _ => assert_eq!(agenda.entries, heap.len(), "seed {seed}"),
                }
            }
        }
    }

    #[test]
    fn a_moment_that_has_its_turn_may_be_added_to_and_interrupted() {
        let mut agenda = Agenda::default();
        for (at, slot) in [(5, 3), (5, 1), (5, 2), (7, 0)] {
            agenda.add(at, slot);
        }
        assert_eq!(agenda.pop_due(9), Some((5, 1)));
        agenda.add(5, 0);
        assert_eq!(agenda.pop_due(4), None, "not before its moment");
        assert_eq!(agenda.pop_due(5), Some((5, 2)));
        agenda.add(4, 9);
        let rest: Vec<_> = std::iter::from_fn(|| agenda.pop_due(5)).collect();
        assert_eq!(rest, [(4, 9), (5, 0), (5, 3)]);
        agenda.add(5, 1);
        assert_eq!(agenda.next(), Some(5));
        assert_eq!(agenda.pop_due(7), Some((5, 1)));
        assert_eq!(agenda.pop_due(7), Some((7, 0)));
        assert_eq!((agenda.pop_due(9), agenda.entries), (None, 0));
    }

    #[test]
    fn entries_out_of_date_are_dropped_once_they_are_most() {
        let mut agenda = Agenda::default();
        for number in 0..4_000 {
            agenda.add(i64::from(number % 7), number);
        }
        assert_eq!(agenda.pop_due(0), Some((0, 0)));
        agenda.tidy(2_000, |_, _| false);
        assert_eq!(agenda.entries, 3_999, "they may be a few for each key");
        agenda.tidy(1_000, |at, slot| at == 6 || slot == 7);
        assert_eq!(agenda.entries, 572);
        assert_eq!(agenda.pop_due(9), Some((0, 7)));
        assert_eq!(agenda.pop_due(9), Some((6, 6)));
    }
}
