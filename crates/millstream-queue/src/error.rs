//! The errors of queues, worded for the person who reads them.

use std::error::Error;
use std::path::PathBuf;

use crate::name::NameFault;
use crate::storage::operation::RecordFault;

/// The error of a storage: any error that can cross threads.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why an operation on queues failed.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The queue is new and is being created: the request can be done when
    /// [`Broker::created`](crate::broker::Broker::created) has been called.
    #[error("queue \"{queue}\" is being created: try again")]
    BeingCreated {
        /// Its name.
        queue: String,
    },
    /// A name that is not valid for a queue.
    #[error("\"{name}\": {fault}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The storage under one queue failed.
    #[error("queue \"{queue}\"")]
    Storage {
        /// The queue.
        queue: String,
        /// The error of the storage.
        #[source]
        cause: Cause,
    },
    /// The queues in the storage could not be listed.
    #[error("cannot list the queues")]
    Listing(#[source] Cause),
    /// A record of a queue's log is not valid.
    #[error("queue \"{queue}\": record {position}: {what}")]
    Record {
        /// The queue.
        queue: String,
        /// The position of the record in its log.
        position: u64,
        /// What is wrong with it.
        what: RecordFault,
    },
    /// The queue was damaged when it was opened.
    #[error("queue \"{queue}\" is closed: {reason}")]
    Closed {
        /// The queue.
        queue: String,
        /// The damage, with file and offset.
        reason: String,
    },
    /// A queue that there is not.
    #[error("there is no queue \"{0}\"")]
    Missing(String),
    /// A queue that items shall move from and to.
    #[error("queue \"{0}\" cannot send items to itself")]
    Itself(String),
    /// An alias, where a queue is needed.
    #[error("\"{0}\" is an alias, not a queue")]
    Alias(String),
    /// A queue that keeps no items, where one that does is needed.
    #[error("queue \"{0}\" keeps no items: it is fanout_only")]
    FanoutOnly(String),
    /// A set to a queue that keeps no items and has no fan-out queue: the item would be nowhere.
    #[error(
        "queue \"{0}\" keeps no items, since it is fanout_only, and has no fan-out queue: the first get of one, such as \"{0}+audit\", makes it"
    )]
    NoFanout(String),
    /// The queue has as many items, or bytes, as it may have.
    #[error("queue \"{queue}\" is full")]
    Full {
        /// The queue.
        queue: String,
    },
    /// A set with an id, to a queue that remembers none.
    #[error(
        "queue \"{queue}\" remembers no ids: its setting dedupe says how long it does, such as dedupe = \"10min\""
    )]
    NoDedupe {
        /// The queue.
        queue: String,
    },
    /// A set with an id, to a queue that remembers as many as it may.
    #[error(
        "queue \"{queue}\" remembers {ids} ids, its dedupe_ids: it takes no other before one of them is over"
    )]
    TooManyIds {
        /// The queue.
        queue: String,
        /// The limit.
        ids: usize,
    },
    /// The item is larger than the limit of this queue.
    #[error("queue \"{queue}\" does not take an item of {bytes} bytes")]
    TooLarge {
        /// The queue.
        queue: String,
        /// The item's length.
        bytes: usize,
    },
    /// Some of several items were stored before one was refused.
    #[error("the first {stored} items are stored, and the next one is not")]
    Partly {
        /// The number of items that are stored.
        stored: usize,
        /// The error of the next item.
        #[source]
        cause: Box<QueueError>,
    },
    /// Another process, such as a server, has the directory open.
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
    #[error("{}: the queues cannot be opened", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The queues were opened before this process was forked from another.
    #[error("these queues belong to the process that this one was forked from")]
    Forked,
    /// The limit on the number of queues is reached.
    #[error("there are {0} queues already, the limit")]
    TooManyQueues(usize),
    /// A configuration that is not valid.
    #[error("{}: {message}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
}

millstream_journal::debug_as_chain!(QueueError);
