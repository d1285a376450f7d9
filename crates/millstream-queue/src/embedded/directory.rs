//! A directory of queues, as threads of this process use it.

use std::path::Path;
use std::sync::Arc;

use super::open_directory::{Handle, OpenDirectory};
use super::options::Options;
use crate::error::QueueError;

/// A folder of queues that is open in this process. Copies are the same folder; it is closed with the last of them, of
/// its [`Queue`]s and [`OpenItem`]s.
#[derive(Clone, Debug)]
pub struct Queues {
    open: Handle,
}

impl Queues {
    /// Open the queues in a folder, which is made if need be. One that is damaged is kept closed, see [`closed`](Self::closed).
    ///
    /// # Errors
    /// Another process has the folder, a server for instance. This process has it with other options. The configuration
    /// cannot be read, or the system refuses.
    pub fn open(folder: impl AsRef<Path>, options: &Options) -> Result<Self, QueueError> {
        let open = OpenDirectory::attach(folder.as_ref(), Some(options))?;
        Ok(Queues { open })
    }

    /// Open a folder as this process has it open, or else with the options of a server that is given none.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn attach(folder: impl AsRef<Path>) -> Result<Self, QueueError> {
        let open = OpenDirectory::attach(folder.as_ref(), None)?;
        Ok(Queues { open })
    }

    /// Where the queues are.
    pub fn folder(&self) -> &Path {
        self.open.folder()
    }

    /// The names of all queues that are open, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.open.lock().broker.names()
    }

    /// The queues that are kept closed because they are damaged: name, and what is wrong.
    pub fn closed(&self) -> Vec<(String, String)> {
        let state = self.open.lock();
        let closed = state.broker.closed();
        closed
            .map(|(name, reason)| (name.to_owned(), reason.to_owned()))
            .collect()
    }

    /// Read the configuration again. Items that are there keep their expiry.
    ///
    /// # Errors
    /// It cannot be read; the old one holds.
    pub fn reload(&self) -> Result<(), QueueError> {
        let config = self.open.options().read_config()?;
        self.open.with_broker(|broker, now| {
            broker.configure(config, now);
            Ok(())
        })
    }

    /// Make everything durable, whatever the policies say.
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
