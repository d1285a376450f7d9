//! A directory of queues, as threads of this process use it.

use std::path::Path;
use std::sync::Arc;

use super::open_directory::{Handle, OpenDirectory};
use super::options::Options;
use crate::error::QueueError;

/// A directory of queues that is open in this process. Clones share the directory; it is closed with the last of
/// them, of its [`Queue`](super::Queue)s and [`OpenItem`](super::OpenItem)s.
#[derive(Clone, Debug)]
pub struct Queues {
    open: Handle,
}

impl Queues {
    /// Opens the queues in a directory, which is created if necessary. A damaged queue stays closed, see
    /// [`closed`](Self::closed).
    ///
    /// # Errors
    /// Another process, such as a server, has the directory open, or this process has it open with other options. The
    /// configuration cannot be read, or the system refuses.
    pub fn open(folder: impl AsRef<Path>, options: &Options) -> Result<Self, QueueError> {
        let open = OpenDirectory::attach(folder.as_ref(), Some(options))?;
        Ok(Queues { open })
    }

    /// Opens a directory with the options with which this process has it open, or else with the defaults of a server.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn attach(folder: impl AsRef<Path>) -> Result<Self, QueueError> {
        let open = OpenDirectory::attach(folder.as_ref(), None)?;
        Ok(Queues { open })
    }

    /// The directory of the queues.
    pub fn folder(&self) -> &Path {
        self.open.folder()
    }

    /// The names of all open queues, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.open.lock().broker.names()
    }

    /// The queues that stay closed because they are damaged: name, and reason.
    pub fn closed(&self) -> Vec<(String, String)> {
        let state = self.open.lock();
        let closed = state.broker.closed();
        closed
            .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
            .collect()
    }

    /// Reads the configuration again. Existing items keep their expiry.
    ///
    /// # Errors
    /// The configuration cannot be read; the old one stays in effect.
    pub fn reload(&self) -> Result<(), QueueError> {
        let config = self.open.options().read_config()?;
        self.open.with_broker(|broker, now| {
            broker.configure(config, now);
            Ok(())
        })
    }

    /// Makes everything durable, whatever the policies are.
    ///
    /// # Errors
    /// A sync failed; the other queues are durable.
    pub fn sync(&self) -> Result<(), QueueError> {
        self.open.with_broker(|broker, _| broker.sync_all())
    }

    pub(super) fn open_directory(&self) -> &OpenDirectory {
        &self.open
    }
}
