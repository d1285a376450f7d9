//! Everything that can go wrong with queues, worded for the person who reads it.

use std::error::Error;
use std::path::PathBuf;

use crate::name::NameFault;

/// What a storage says went wrong: any error that can cross threads.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why queues could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// A name that cannot be a queue's.
    #[error("\"{name}\": {fault}")]
    Name {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The storage under one queue failed.
    #[error("queue \"{queue}\": {cause}")]
    Storage {
        /// The queue.
        queue: String,
        /// What the storage said.
        #[source]
        cause: Cause,
    },
    /// The disk is full, and the removal of an item that is taken could not be recorded: it would come back after a crash.
    #[error("queue \"{queue}\": nothing is taken until its removal can be recorded: {cause}")]
    NoRoomToRemove {
        /// The queue.
        queue: String,
        /// What the storage said.
        #[source]
        cause: Cause,
    },
    /// The storage itself could not be listed.
    #[error("cannot list the queues: {0}")]
    Listing(#[source] Cause),
    /// A record in a queue's storage has no meaning.
    #[error("queue \"{queue}\": record {position}: {what}")]
    Record {
        /// The queue.
        queue: String,
        /// Which record of its log.
        position: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The queue was found damaged when the server started.
    #[error("queue \"{queue}\" is closed: {reason}")]
    Closed {
        /// The queue.
        queue: String,
        /// The damage, with file and offset.
        reason: String,
    },
    /// An alias, where one queue is needed.
    #[error("\"{0}\" is an alias, not a queue")]
    Alias(String),
    /// A queue that keeps no items, where one that does is needed.
    #[error("queue \"{0}\" keeps no items: it is fanout_only")]
    FanoutOnly(String),
    /// The queue has as many items, or bytes, as it may have.
    #[error("queue \"{queue}\" is full")]
    Full {
        /// The queue.
        queue: String,
    },
    /// The item is larger than an item of this queue may be.
    #[error("queue \"{queue}\" does not take an item of {bytes} bytes")]
    TooLarge {
        /// The queue.
        queue: String,
        /// The item's length.
        bytes: usize,
    },
    /// Of several items some were stored before one was not.
    #[error("{cause} (the first {stored} items are stored)")]
    Partly {
        /// How many.
        stored: usize,
        /// What was wrong with the next.
        #[source]
        cause: Box<QueueError>,
    },
    /// The directory is a server's, or another process has it.
    #[error("{}: another process has these queues open", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is open in this process, with other settings.
    #[error("{}: these queues are open already, with other settings", path.display())]
    Differs {
        /// The directory.
        path: PathBuf,
    },
    /// The directory could not be opened.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The queues were opened before this process was forked from another.
    #[error("these queues belong to the process that this one was forked from")]
    Forked,
    /// One queue more than allowed.
    #[error("there are {0} queues already, the limit")]
    TooManyQueues(usize),
    /// A configuration that says something impossible.
    #[error("{}: {message}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What and where.
        message: String,
    },
}
