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
