//! The seam between queues and the place where they are kept.
//!
//! A queue is a [`Log`]: records that are appended and read back by their position. Positions are dense, begin at 0 and
//! are never used again. What a record means is the business of [`operation`](crate::operation).
//!
//! The invariant that a storage must keep: after a crash the records of a log are a prefix of those appended, with all
//! in it that were synced.

mod journal;
mod memory;

pub use journal::{JournalLog, JournalStorage};
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

    /// Open the log of a queue, and create it if need be.
    ///
    /// # Errors
    /// It is damaged, used by another process, or the system refuses.
    fn open(&mut self, name: &str) -> Result<Self::Log, Cause>;

    /// Remove a queue with all its items, for ever.
    ///
    /// # Errors
    /// The system refuses.
    fn remove(&mut self, name: &str) -> Result<(), Cause>;
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

    /// What the log occupies, in bytes.
    fn bytes(&self) -> u64;
}
