//! Rounds: work on many items or queues is done in pieces, and the other connections are served between two of them.
//!
//! A round ends by a count of what was done and not by a clock, so that it ends at the same place in each run. The rest
//! stays where it is, and the next round finds it there: the owner of the work says that it is due at once, or is asked
//! again by the connection that waits for the answer.
//!
//! The invariant: a function that does work of unknown length takes a unit of the round for each piece, and stops when
//! the round is over.

/// The units of a round, each of which is an item: about a millisecond together.
pub(crate) const ITEMS: usize = 200;
/// The bytes of an item that cost another unit.
const UNIT_BYTES: usize = 16 << 10;

/// What a queue costs besides its items.
pub(crate) const QUEUE: usize = 10;
/// What it costs to open the log of a queue, or to close it.
pub(crate) const LOG: usize = 250;

/// What is left of a round.
#[derive(Debug)]
pub(crate) struct Round {
    left: usize,
}

impl Round {
    /// A round of this many units.
    pub(crate) fn of(units: usize) -> Self {
        Round { left: units }
    }

    /// Whether more may be done.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.left > 0
    }

    /// The units that are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Work of this many units was done.
    #[inline]
    pub(crate) fn took(&mut self, units: usize) {
        self.left = self.left.saturating_sub(units);
    }

    /// An item of this length was handled.
    #[inline]
    pub(crate) fn took_item(&mut self, length: usize) {
        self.took(1 + length / UNIT_BYTES);
    }
}
