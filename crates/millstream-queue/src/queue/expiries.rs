//! When items of the backlog expire. They are in the log only; here is the first expiry of each block of records.
//!
//! A time for each item would take memory that grows with the backlog. A block is read when its first item has expired.
//! Between two rounds of reading is a pause, so that a block whose items have many different expiries is not read for
//! each of them; a round removes all that has expired, so that items of one lifetime leave in their order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::moment::Moment;

/// The number of records in a block.
pub(super) const RECORDS: u64 = 256;
/// The time between two rounds, and so the longest delay of an expiry.
const PAUSE_US: u64 = 250_000;

/// The first expiry of each block that has one.
#[derive(Debug, Default)]
pub(super) struct Expiries {
    by_block: BTreeMap<u64, u64>,
    by_time: BTreeSet<(u64, u64)>,
    /// When the next round may begin, on the steady clock.
    paused_until_us: u64,
}

impl Expiries {
    /// The record at `position` has an item that expires then; 0 is never.
    #[inline]
    pub(super) fn insert(&mut self, position: u64, expiry_ms: u64) {
        if expiry_ms == 0 {
            return;
        }
        let block = position / RECORDS;
        let known = self.by_block.get(&block).copied();
        if known.is_none_or(|known| expiry_ms < known) {
            if let Some(known) = self.by_block.insert(block, expiry_ms) {
                self.by_time.remove(&(known, block));
            }
            self.by_time.insert((expiry_ms, block));
        }
    }

    /// The time of the next round, on the steady clock.
    #[inline]
    pub(super) fn next_event(&self, now: Moment) -> Option<u64> {
        let &(expiry_ms, _) = self.by_time.first()?;
        Some(now.steady_at(expiry_ms).max(self.paused_until_us))
    }

    /// Removes a block in which an item has expired, and returns the positions of its records. `None` ends a round, or
    /// says that the next one may not begin.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<Range<u64>> {
        if now.steady_us < self.paused_until_us {
            return None;
        }
        let due = self
            .by_time
            .first()
            .filter(|(expiry_ms, _)| *expiry_ms <= now.wall_ms);
        let Some(&(expiry_ms, block)) = due else {
            self.pause(now);
            return None;
        };
        self.by_time.remove(&(expiry_ms, block));
        self.by_block.remove(&block);
        Some(block * RECORDS..(block + 1) * RECORDS)
    }

    /// A round has ended.
    pub(super) fn pause(&mut self, now: Moment) {
        self.paused_until_us = now.steady_us.saturating_add(PAUSE_US);
    }

    /// The next round may begin at once.
    pub(super) fn resume(&mut self) {
        self.paused_until_us = 0;
    }

    /// Forgets the blocks before this position.
    pub(super) fn forget_before(&mut self, position: u64) {
        while let Some(first) = self.by_block.first_entry() {
            if *first.key() >= position / RECORDS {
                return;
            }
            let (block, expiry_ms) = first.remove_entry();
            self.by_time.remove(&(expiry_ms, block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_due_with_its_first_item_and_a_round_after_a_pause() {
        let at = |wall_ms, steady_us| Moment { wall_ms, steady_us };
        let mut expiries = Expiries::default();
        expiries.insert(3, 0);
        assert_eq!(expiries.next_event(at(0, 0)), None);
        expiries.insert(RECORDS, 70);
        expiries.insert(RECORDS + 9, 50);
        expiries.insert(RECORDS + 10, 60);
        expiries.insert(3 * RECORDS, 55);
        assert_eq!(expiries.take_due(at(60, 0)), Some(RECORDS..2 * RECORDS));
        expiries.insert(RECORDS, 70);
        assert_eq!(expiries.take_due(at(60, 0)), Some(3 * RECORDS..4 * RECORDS));
        assert_eq!(expiries.take_due(at(60, 0)), None);
        // The next round.
        assert_eq!(expiries.next_event(at(69, 9_000)), Some(PAUSE_US));
        assert_eq!(expiries.take_due(at(70, PAUSE_US - 1)), None);
        expiries.forget_before(2 * RECORDS - 1);
        assert_eq!(
            expiries.take_due(at(70, PAUSE_US)),
            Some(RECORDS..2 * RECORDS)
        );
        expiries.insert(RECORDS, 70);
        expiries.forget_before(2 * RECORDS);
        assert!(expiries.by_time.is_empty() && expiries.by_block.is_empty());
    }
}
