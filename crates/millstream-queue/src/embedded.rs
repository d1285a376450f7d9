//! Queues in process: the same folder, the same queues and the same promises as a server's, without a socket.
//!
//! All threads of a process share a folder: whoever opens it again gets the queues that are open already. Another process is
//! refused, be it a server. A thread of our own does what is due without a call: delays and waits end, items expire, queues are synced.
//!
//! The invariant: an item that was put is durable as its queue's policy says when [`Queue::put`] returns, and an item that was opened is
//! either confirmed by [`OpenItem::close`] or takes its place again, however its reader ends.
//!
//! ```
//! use std::time::Duration;
//! use millstream_queue::embedded::{Options, Queues};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let queues = Queues::open(folder.path(), &Options::default())?;
//! let orders = queues.queue("orders")?;
//! orders.put(b"first")?;
//! orders.put(b"second")?;
//!
//! if let Some(item) = orders.open(Duration::from_secs(5))? {
//!     assert_eq!(item.body(), b"first"); // ours, until it is closed; dropped, it takes its place again
//!     item.close()?;
//! }
//! assert_eq!(orders.get(Duration::ZERO)?.as_deref(), Some(&b"second"[..]));
//! # Ok::<(), millstream_queue::QueueError>(())
//! ```

mod lend;
mod open_item;
mod queue;
mod registry;
mod shared;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::open_item::OpenItem;
pub use self::queue::{PutOptions, Queue};
use self::shared::Shared;
pub use self::waiting::Waiting;
use crate::config::{Config, Sync};
use crate::error::QueueError;
use crate::name;

/// How a folder of queues is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// When an item is durable, where the configuration says nothing. Before it is acknowledged, unless told otherwise.
    pub sync: Sync,
    /// The configuration, as a server reads it.
    pub config: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sync: Sync::Always,
            config: None,
        }
    }
}

impl Options {
    fn read_config(&self) -> Result<Config, QueueError> {
        let config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        Ok(config.or_sync(self.sync))
    }
}

/// A folder of queues that is open in this process. Copies are the same folder; it is closed with the last of them, of
/// its [`Queue`]s and [`OpenItem`]s.
#[derive(Clone, Debug)]
pub struct Queues {
    shared: Arc<Shared>,
}

impl Queues {
    /// Open the queues in a folder, which is made if need be. One that is damaged is kept closed, see [`closed`](Self::closed).
    ///
    /// # Errors
    /// Another process has the folder, a server for instance. This process has it with other options. The configuration
    /// cannot be read, or the system refuses.
    pub fn open(folder: impl AsRef<Path>, options: &Options) -> Result<Self, QueueError> {
        let shared = registry::open(folder.as_ref(), Some(options))?;
        Ok(Queues { shared })
    }

    /// Open a folder as this process has it open, or else with the options of a server that is given none.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn attach(folder: impl AsRef<Path>) -> Result<Self, QueueError> {
        let shared = registry::open(folder.as_ref(), None)?;
        Ok(Queues { shared })
    }

    /// Where the queues are.
    pub fn folder(&self) -> &Path {
        self.shared.folder()
    }

    /// The queue of this name, which comes to be with its first item.
    ///
    /// # Errors
    /// No queue can have this name.
    pub fn queue(&self, name: &str) -> Result<Queue, QueueError> {
        name::check(name.as_bytes()).map_err(|fault| QueueError::Name {
            name: name.to_owned(),
            fault,
        })?;
        Ok(Queue::new(self.clone(), name.into()))
    }

    /// The names of all queues that are open, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.shared.lock().queues.names()
    }

    /// The queues that are kept closed because they are damaged: name, and what is wrong.
    pub fn closed(&self) -> Vec<(String, String)> {
        let state = self.shared.lock();
        let closed = state.queues.closed();
        closed
            .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
            .collect()
    }

    /// Read the configuration again. Items that are there keep their expiry.
    ///
    /// # Errors
    /// It cannot be read; the old one holds.
    pub fn reload(&self) -> Result<(), QueueError> {
        let config = self.shared.options().read_config()?;
        self.shared.touch(|queues, now| {
            queues.configure(config, now);
            Ok(())
        })
    }

    /// Make everything durable, whatever the policies say.
    ///
    /// # Errors
    /// A sync failed; the other queues are durable.
    pub fn sync(&self) -> Result<(), QueueError> {
        self.shared.touch(|queues, _| queues.sync_all())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
