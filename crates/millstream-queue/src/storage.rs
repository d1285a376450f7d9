//! The seam between queues and the place where they are kept.
//!
//! A queue is a [`Log`]: records that are appended and read back by their position. Positions are dense, begin at 0 and
//! are never used again. What a record means is the business of [`operation`](crate::storage::operation).
//!
//! The invariant that a storage must keep: after a crash the records of a log are a prefix of those appended, with all
//! in it that were synced.

mod journal;
mod journal_log;
mod memory;
pub mod operation;

pub use journal::JournalStorage;
pub use journal_log::{JournalLog, JournalSyncing};
pub use memory::{MemoryLog, MemoryStorage, MemorySyncing};

use crate::error::Cause;

/// Where all queues are kept, each in a log of its own.
pub trait Storage {
    /// The log of one queue.
    type Log: Log;

    /// The queues that are there.
    ///
    /// # Errors
    /// The place cannot be read.
    fn names(&self) -> Result<Vec<String>, Cause>;

    /// Open the log of a queue. One that is not there comes to be with its first record.
    ///
    /// # Errors
    /// It is damaged, used by another process, or the system refuses.
    fn open(&mut self, name: &str) -> Result<Self::Log, Cause>;

    /// Remove a queue with all its items, for ever.
    ///
    /// # Errors
    /// The system refuses.
    fn remove(&mut self, name: &str) -> Result<(), Cause>;

    /// How many logs take descriptors and threads at present.
    fn open_logs(&self) -> usize {
        0
    }
}

/// Makes the records of a log durable while others append to it.
pub trait Syncing {
    /// As [`Log::sync`], of all that was appended before the call. Calls at the same time may share one sync.
    ///
    /// # Errors
    /// As for [`Log::sync`].
    fn sync(&self) -> Result<(), Cause>;
}

/// The records of one queue.
pub trait Log {
    /// See [`syncing`](Self::syncing).
    type Syncing: Syncing;

    /// Append a record; it is safe from the death of this process, and after [`sync`](Self::sync) from that of the machine.
    ///
    /// # Errors
    /// The disk is full, or the log has failed before. Then nothing was appended.
    fn append(&mut self, record: &[u8]) -> Result<u64, Cause>;

    /// The record at a position from [`first`](Self::first) up to [`next`](Self::next).
    ///
    /// # Errors
    /// The record is damaged or was pruned.
    fn read(&mut self, position: u64) -> Result<&[u8], Cause>;

    /// The first position that can still be read.
    fn first(&self) -> u64;

    /// The position that the next record will get.
    fn next(&self) -> u64;

    /// All records before this position survive a loss of power.
    fn durable(&self) -> u64;

    /// Make all records durable.
    ///
    /// # Errors
    /// Something may be lost. The log takes nothing more.
    fn sync(&mut self) -> Result<(), Cause>;

    /// What syncs this log without keeping it.
    fn syncing(&self) -> Self::Syncing;

    /// Give up the records before a position, as far as that frees memory or disk.
    ///
    /// # Errors
    /// The system refuses; nothing that is needed was lost.
    fn prune(&mut self, before: u64) -> Result<(), Cause>;

    /// What the records occupy, in bytes.
    fn bytes(&self) -> u64;

    /// [`append`](Self::append) a record by which others are no longer needed, if need be with room that is in reserve.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    fn append_reserved(&mut self, record: &[u8]) -> Result<u64, Cause> {
        self.append(record)
    }

    /// Make sure that this many items can be removed whatever becomes of the room on the disk. Only a log of an earlier version may not
    /// have what that takes.
    ///
    /// # Errors
    /// There is no room for it; items that are taken now would come back after a crash.
    fn reserve_removals(&mut self, _items: usize) -> Result<(), Cause> {
        Ok(())
    }

    /// Whether the last attempt to append met a full disk.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether an attempt to append has met a full disk since [`roll_segment`](Self::roll_segment), or since the log was opened.
    fn was_full(&self) -> bool {
        false
    }

    /// Strike a record out: the item in it has left. That needs no room, so that it works on a full disk, and is as safe as a record.
    ///
    /// # Errors
    /// The disk is not full, so that a record can say it; or the log cannot.
    fn tombstone(&mut self, _position: u64) -> Result<(), Cause> {
        Err("this log cannot strike records out".into())
    }

    /// Whether a record was struck out.
    fn has_tombstone(&self, _position: u64) -> bool {
        false
    }

    /// No record is needed: see that [`prune`](Self::prune) can give up all of them, the last ones too. False when that is not worth it.
    ///
    /// # Errors
    /// The system refuses.
    fn roll_segment(&mut self) -> Result<bool, Cause> {
        Ok(false)
    }

    /// Give back descriptors and threads until the next use; whether it did.
    fn suspend(&mut self) -> bool {
        false
    }

    /// Whether there is nothing to give back.
    fn is_suspended(&self) -> bool {
        true
    }

    /// Whether anything is kept: a log without a record need not be.
    fn exists(&self) -> bool {
        true
    }

    /// Make the log now, also without a record.
    ///
    /// # Errors
    /// The system refuses.
    fn create(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    /// All records have been read once, as after opening: what serves for that is no longer needed.
    fn end_restore(&mut self) {}

    /// What the disk holds for this log, in bytes.
    fn disk_bytes(&mut self) -> u64 {
        self.bytes()
    }
}
