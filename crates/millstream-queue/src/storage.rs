//! The storage of queues: the seam between queues and files.
//!
//! A queue is a [`Log`]: records that are appended and read by their position. Positions are dense, begin at 0 and
//! are never reused. [`operation`] defines the records.
//!
//! The invariant of each storage: after a crash the records of a log are a prefix of those appended, which includes
//! all that were synced.

mod journal;
mod journal_log;
mod makers;
mod memory;
pub mod operation;
mod removals;

pub(crate) use journal::CHANGES;
pub use journal::JournalStorage;
pub(crate) use journal_log::Origin;
pub use journal_log::{JournalLog, JournalSyncing};
pub use memory::{MemoryLog, MemoryStorage, MemorySyncing};

use crate::error::Cause;

/// The storage of all queues, each in a log of its own.
pub trait Storage {
    /// The log of one queue.
    type Log: Log;

    /// The names of all queues.
    ///
    /// # Errors
    /// The storage cannot be read.
    fn names(&self) -> Result<Vec<String>, Cause>;

    /// Opens the log of a queue. A new log is created with its first record.
    ///
    /// # Errors
    /// The log is damaged, another process uses it, or the system refuses.
    fn open(&mut self, name: &str) -> Result<Self::Log, Cause>;

    /// Opens the logs of these queues, in their order: several at a time, where the storage can.
    fn open_many(&mut self, names: &[String]) -> Vec<Result<Self::Log, Cause>> {
        names.iter().map(|name| self.open(name)).collect()
    }

    /// Deletes a queue with all its items.
    ///
    /// # Errors
    /// The system refuses.
    fn remove(&mut self, name: &str) -> Result<(), Cause>;

    /// The number of logs that hold descriptors.
    fn open_logs(&self) -> usize {
        0
    }
}

/// Makes the records of a log durable while others append to it.
pub trait Syncing {
    /// Syncs all records that were appended before the call, as [`Log::sync`]. Concurrent calls may share one sync.
    ///
    /// # Errors
    /// As for [`Log::sync`].
    fn sync(&self) -> Result<(), Cause>;
}

/// The records of one queue.
pub trait Log {
    /// See [`syncing`](Self::syncing).
    type Syncing: Syncing;

    /// Appends a record. It survives the death of this process, and after [`sync`](Self::sync) that of the machine.
    ///
    /// # Errors
    /// The disk is full, or the log has failed before. Nothing was appended.
    fn append(&mut self, record: &[u8]) -> Result<u64, Cause>;

    /// The record at a position from [`first`](Self::first) up to [`next`](Self::next).
    ///
    /// # Errors
    /// The record is damaged or was pruned.
    fn read(&mut self, position: u64) -> Result<&[u8], Cause>;

    /// The first position that can still be read.
    fn first(&self) -> u64;

    /// The position of the next record.
    fn next(&self) -> u64;

    /// The durable watermark: all records before it survive a loss of power.
    fn durable(&self) -> u64;

    /// Makes all records durable.
    ///
    /// # Errors
    /// Records may be lost. The log accepts no more.
    fn sync(&mut self) -> Result<(), Cause>;

    /// A handle that syncs this log without borrowing it.
    fn syncing(&self) -> Self::Syncing;

    /// Removes the records before a position, as far as that frees memory or disk space.
    ///
    /// # Errors
    /// The system refuses; no record that is needed is lost.
    fn prune(&mut self, before: u64) -> Result<(), Cause>;

    /// The size of the records, in bytes.
    fn bytes(&self) -> u64;

    /// Appends a record that makes others superfluous, if necessary in reserved space.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    fn append_reserved(&mut self, record: &[u8]) -> Result<u64, Cause> {
        self.append(record)
    }

    /// Whether the last append failed because the disk is full.
    fn is_full(&self) -> bool;

    /// Whether an append has failed because of a full disk since [`roll_segment`](Self::roll_segment), or since the
    /// log was opened.
    fn was_full(&self) -> bool {
        false
    }

    /// Puts a tombstone on a record: its item has left. It needs no space, so that it works on a full disk, and is as
    /// durable as a record.
    ///
    /// # Errors
    /// The disk is not full, so that a record must be used; or the log has failed.
    fn tombstone(&mut self, position: u64) -> Result<(), Cause>;

    /// Whether a record has a tombstone.
    fn has_tombstone(&self, position: u64) -> bool;

    /// Begins a new segment, so that [`prune`](Self::prune) can remove all records, if none is needed. Returns false
    /// if that is not worth it.
    ///
    /// # Errors
    /// The system refuses.
    fn roll_segment(&mut self) -> Result<bool, Cause> {
        Ok(false)
    }

    /// Releases descriptors until the next use. Returns whether it did.
    fn suspend(&mut self) -> bool {
        false
    }

    /// Whether there is nothing to release.
    fn is_suspended(&self) -> bool {
        true
    }

    /// Whether the log exists in the storage: one without a record may not.
    fn exists(&self) -> bool {
        true
    }

    /// Begins to create a log that does not exist, where that can be done beside the calling thread. Returns whether an
    /// append would have to wait for it: the owner is notified when it need not.
    fn begin_create(&mut self) -> bool {
        false
    }

    /// Whether the log is being created, or was created and is not in use yet.
    fn is_being_created(&self) -> bool {
        false
    }

    /// Creates the log now, also without a record.
    ///
    /// # Errors
    /// The system refuses.
    fn create(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    /// Called after all records were read once to restore a queue: releases what only that needed.
    fn end_restore(&mut self) {}

    /// The disk space of this log, in bytes.
    fn disk_bytes(&mut self) -> u64 {
        self.bytes()
    }
}
