//! A full disk: removed items get tombstones, and the log is pruned at once.
//!
//! The invariant: an item whose removal was acknowledged does not return after the death of the process, whether the
//! removal found room or not.

use super::{Log, Queue};
use crate::error::Cause;

impl<L: Log> Queue<L> {
    /// Removes an item, whose last record is at `position`, when there is no room for a record of the removal.
    #[cold]
    pub(super) fn remove_without_room(&mut self, id: u64, position: u64) {
        if self.tombstone(id, position).is_err() {
            return self.compact_if_due();
        }
        self.expedite_prune();
        self.prune();
        self.prune_all();
    }

    /// Puts tombstones on the record of an item and on its rewritten record.
    fn tombstone(&mut self, id: u64, position: u64) -> Result<(), Cause> {
        // Records before the first one are pruned.
        if id >= self.log.first() {
            self.log.tombstone(id)?;
        }
        if position != id {
            self.log.tombstone(position)?;
        }
        Ok(())
    }

    /// Puts tombstones on all items except the open ones.
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

    /// Frees almost all disk space if no record is needed.
    pub(super) fn prune_all(&mut self) {
        if self.oldest() == self.log.next() {
            // If the system refuses now, a later call tries again.
            let _tried = self.log.roll_segment();
            self.prune();
        }
    }
}
