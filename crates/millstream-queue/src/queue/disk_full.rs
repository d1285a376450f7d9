//! A full disk: what leaves a queue is struck out, and what is no longer needed is given up at once.
//!
//! The invariant: an item that was answered does not come back after the death of the process, whether its removal found room or not.

use super::{Log, Queue};
use crate::error::{Cause, QueueError};

impl<L: Log> Queue<L> {
    /// An item leaves, whose last record is at `position`, and there is no room for a record that says so.
    #[cold]
    pub(super) fn finish_without_room(&mut self, id: u64, position: u64, bytes: u32) {
        // A log of an earlier version does not strike records out. Its last segment has room for the removal.
        if self.strike(id, position).is_err() {
            self.owed.push((id, bytes));
            self.pay_owed();
            if !self.owed.is_empty() {
                return self.compact_if_due();
            }
        }
        self.hurry();
        self.prune();
        self.give_up_all();
    }

    /// Make sure that items can leave for good: those that are open or leaving, and `more` besides.
    ///
    /// # Errors
    /// The disk is full, and an earlier version made the log.
    #[inline]
    pub(crate) fn secure_removals(&mut self, more: usize) -> Result<(), QueueError> {
        let items = self.opens.len() + self.leaving.len() + more;
        self.log
            .secure_removals(items)
            .map_err(|cause| QueueError::NoRoomToRemove {
                queue: self.name.to_string(),
                cause,
            })
    }

    /// Strike an item out: its own record, and the one in which it was written again.
    fn strike(&mut self, id: u64, position: u64) -> Result<(), Cause> {
        // Those before are given up.
        if id >= self.log.first() {
            self.log.strike(id)?;
        }
        if position != id {
            self.log.strike(position)?;
        }
        Ok(())
    }

    /// Strike out all items but those that are open.
    pub(super) fn strike_all(&mut self) -> Result<(), Cause> {
        let kept: Vec<u64> = self
            .opens
            .keys()
            .map(|&id| self.relocations.position(id))
            .collect();
        for position in self.log.first()..self.log.next() {
            if !kept.contains(&position) {
                self.log.strike(position)?;
            }
        }
        let opens = &self.opens;
        self.relocations.retain(|id| opens.contains_key(&id));
        Ok(())
    }

    /// If nothing in the log is needed, the disk gets back all but a little of it.
    pub(super) fn give_up_all(&mut self) {
        if self.oldest() == self.log.next() {
            // What the system refuses now is asked for again later.
            let _tried = self.log.begin_anew();
            self.prune();
        }
    }
}
