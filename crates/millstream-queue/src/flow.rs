//! Queues as sources and sinks of flows, in process, without a server.
//!
//! With recovery both are exact: whenever the flow is killed, the effect is that of taking, processing and putting
//! each item once. This is how:
//!
//! *The source* takes items without removing them, and appends the ids of each batch as a note to a ledger in the
//! flow's state directory. Its position is the number of the next note.
//!
//! 1. Before an epoch is committed, the ledger is synced.
//! 2. After the commit, the items of the notes before the position are removed from the queue.
//! 3. The removals are synced before the next commit, and the notes are pruned after it. So at each commit only the
//!    last epoch's removals may be missing, and its notes are there.
//!
//! If the process dies before the removals, the flow removes the items of the committed notes when it resumes. Later
//! notes are truncated; their items are still in the queue.
//!
//! *The sink* stages its output in a journal beside the queues, which is truncated to the last commit as every sink's
//! journal is.
//!
//! 1. After an epoch is committed, its items are moved from there into the queue, where other readers see them.
//! 2. Each item has its staged number in the same record of the queue's log, so that an interrupted move resumes at
//!    the next number.
//! 3. Staged items are pruned once the queue is synced.
//!
//! Without recovery the source is at-least-once: items are removed when the flow has processed them, and are in the
//! queue again if the process dies before. The sink puts items immediately.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec};
//! use millstream_queue::embedded::Queues;
//! use millstream_queue::flow::{read, write};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let queues = Queues::attach(folder.path())?;
//! queues.queue("words")?.put_many(["to", "be"], &Default::default())?;
//!
//! let flow = Flow::new("shout");
//! flow.source("words", codec::decode(read(&queues, "words").until_empty(), codec::text))
//!     .map(|word| word.to_uppercase())
//!     .sink("loud", codec::encode(write(&queues, "loud"), codec::display));
//! flow.run(Options::default())?;
//!
//! let loud = queues.queue("loud")?;
//! assert_eq!(loud.get(Default::default())?.as_deref(), Some(&b"TO"[..]));
//! assert!(queues.queue("words")?.is_empty()?);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

mod ledger;
mod loans;
mod sink;
mod source;
mod staging;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::QueueError;
use crate::embedded::{Queue, Queues};

pub use sink::{WriteQueue, write};
pub use source::{ReadQueues, read, read_all};

/// The directory of queues: an open one, or a path, which is opened by [`Queues::attach`] while the flow runs.
#[derive(Clone, Debug)]
pub enum Location {
    /// Queues that are open.
    Open(Queues),
    /// A directory.
    Folder(PathBuf),
}

impl Location {
    fn queue(&self, name: &str) -> Result<Queue, QueueError> {
        match self {
            Location::Open(queues) => queues.queue(name),
            Location::Folder(path) => Queues::attach(path)?.queue(name),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Location::Open(queues) => queues.folder(),
            Location::Folder(path) => path,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl From<&Queues> for Location {
    fn from(queues: &Queues) -> Self {
        Location::Open(queues.clone())
    }
}

impl From<&Path> for Location {
    fn from(path: &Path) -> Self {
        Location::Folder(path.to_owned())
    }
}

impl From<&PathBuf> for Location {
    fn from(path: &PathBuf) -> Self {
        Location::Folder(path.clone())
    }
}

impl From<&str> for Location {
    fn from(path: &str) -> Self {
        Location::Folder(path.into())
    }
}

/// Locks a mutex whose poisoning does not matter: each value in it is consistent at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
