//! A full disk: what leaves a queue is struck out, and what is no longer needed is given up at once.
//!
//! The invariant: an item that was answered does not come back after the death of the process, whether its removal found room or not.

use super::{Log, Queue};
use crate::error::{Cause, QueueError};

impl<L: Log> Queue<L> {
    /// An item leaves, whose last record is at `position`, and there is no room for a record that says so.
    #[cold]
    pub(super) fn remove_without_room(&mut self, id: u64, position: u64, bytes: u32) {
        // A log of an earlier version does not strike records out. Its last segment has room for the removal.
        if self.tombstone(id, position).is_err() {
            self.pending_removals.push((id, bytes));
            self.write_pending_removals();
            if !self.pending_removals.is_empty() {
                return self.compact_if_due();
            }
        }
        self.expedite_prune();
        self.prune();
        self.prune_all();
    }

    /// Make sure that items can leave for good: those that are open or leaving, and `more` besides.
    ///
    /// # Errors
    /// The disk is full, and an earlier version made the log.
    #[inline]
    pub(crate) fn reserve_removals(&mut self, more: usize) -> Result<(), QueueError> {
        let items = self.opens.len() + self.dead_letters.len() + more;
        self.log
            .reserve_removals(items)
            .map_err(|cause| QueueError::NoRoomToRemove {
                queue: self.name.to_string(),
                cause,
            })
    }

    /// Strike an item out: its own record, and the one in which it was written again.
    fn tombstone(&mut self, id: u64, position: u64) -> Result<(), Cause> {
        // Those before are given up.
        if id >= self.log.first() {
            self.log.tombstone(id)?;
        }
        if position != id {
            self.log.tombstone(position)?;
        }
        Ok(())
    }

    /// Strike out all items but those that are open.
    pub(super) fn tombstone_all(&mut self) -> Result<(), Cause> {
        let kept: Vec<u64> = self
            .opens
            .keys()
            .map(|&id| self.relocations.position(id))
            .collect();
        for position in self.log.first()..self.log.next() {
            if !kept.contains(&position) {
                self.log.tombstone(position)?;
            }
        }
        let opens = &self.opens;
        self.relocations.retain(|id| opens.contains_key(&id));
        Ok(())
    }

    /// If nothing in the log is needed, the disk gets back all but a little of it.
    pub(super) fn prune_all(&mut self) {
        if self.oldest() == self.log.next() {
            // What the system refuses now is asked for again later.
            let _tried = self.log.roll_segment();
            self.prune();
        }
    }
}
