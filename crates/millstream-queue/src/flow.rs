//! Queues as sources and sinks of flows, in process, without a server.
//!
//! With recovery both are exact: it is as if each item that was put into the queue had been taken, processed and its output put
//! once, whenever the flow is killed. Why that holds:
//!
//! *The source* takes items without removing them, and notes the ids of each batch in a ledger in the flow's state directory; its
//! position is the number of the next note. Before an epoch is committed the ledger is synced. Once the epoch counts, the items of
//! the notes before its position are removed from the queue. Dies the process before that, the flow finds the notes when it resumes,
//! and removes their items before it takes others; the notes behind the position are cut off, and their items, which nobody has
//! removed, are still in the queue. The removals are synced before the next commit, and the notes are given up behind it: so at
//! each commit only the last epoch's removals may be missing, and its notes are there.
//!
//! *The sink* stages what the flow gives in a journal beside the queues, which is cut back to the last commit as every sink's
//! journal is. Once an epoch counts, its items are moved from there into the queue: only then do others see them. Each item carries
//! its staged number into the queue's own log, in one record, so that the queue itself knows up to which number items have come: a
//! move that was broken off goes on there. Staged items are given up once the queue that has them is synced.
//!
//! Without recovery the source is at least once: items are removed when nothing of them is on its way any more, and come again if the
//! process dies before. The sink puts at once.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec};
//! use millstream_queue::embedded::Queues;
//! use millstream_queue::flow::{read, write};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let place = Queues::attach(folder.path())?;
//! place.queue("words")?.put_many(["to", "be"], &Default::default())?;
//!
//! let flow = Flow::new("shout");
//! flow.source("words", codec::decode(read(&place, "words").until_empty(), codec::text))
//!     .map(|word| word.to_uppercase())
//!     .sink("loud", codec::encode(write(&place, "loud"), codec::display));
//! flow.run(Options::default())?;
//!
//! let loud = place.queue("loud")?;
//! assert_eq!(loud.get(Default::default())?.as_deref(), Some(&b"TO"[..]));
//! assert!(place.queue("words")?.is_empty()?);
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

/// Which folder of queues: one that is open, or a path, which is opened as [`Queues::attach`] does for as long as the flow runs.
#[derive(Clone, Debug)]
pub enum Place {
    /// Queues that are open.
    Open(Queues),
    /// A folder.
    Folder(PathBuf),
}

impl Place {
    fn queue(&self, name: &str) -> Result<Queue, QueueError> {
        match self {
            Place::Open(queues) => queues.queue(name),
            Place::Folder(path) => Queues::attach(path)?.queue(name),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Place::Open(queues) => queues.folder(),
            Place::Folder(path) => path,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl From<&Queues> for Place {
    fn from(queues: &Queues) -> Self {
        Place::Open(queues.clone())
    }
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Self {
        Place::Folder(path.to_owned())
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Self {
        Place::Folder(path.clone())
    }
}

impl From<&str> for Place {
    fn from(path: &str) -> Self {
        Place::Folder(path.into())
    }
}

/// A lock whose poisoning does not matter: each value behind it is whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
