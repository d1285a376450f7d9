//! An open item, which belongs to its reader until it is confirmed.

use std::time::Duration;

use super::queue::Queue;
use crate::broker::EndedBy;
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;

/// An item that was opened. If it is dropped, it is requeued and counts as delivered once more.
#[derive(Debug)]
#[must_use = "an open item goes back at once if it is dropped"]
pub struct OpenItem {
    queue: Queue,
    item: Item,
    /// The connection that has the item open; `None` once the item has left the queue.
    by: Option<ConnectionId>,
}

impl OpenItem {
    pub(super) fn new(queue: Queue, item: Item, by: Option<ConnectionId>) -> Self {
        OpenItem { queue, item, by }
    }

    /// The bytes.
    pub fn body(&self) -> &[u8] {
        &self.item.body
    }

    /// The item with all its properties.
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// Confirms the item: it leaves the queue for good. Returns false if it is no longer open, because its queue's
    /// `open_timeout` is over or the queue was deleted.
    ///
    /// # Errors
    /// The process was forked from the one that opened it.
    pub fn close(mut self) -> Result<bool, QueueError> {
        match self.by.take() {
            Some(by) => self.queue.close(by),
            None => Ok(false),
        }
    }

    /// Requeues the item, as a drop does.
    pub fn abort(self) {}

    /// Requeues the item, which is served again when `delay` is over, whatever the queue's retries are. It counts as
    /// delivered once more. Returns false if it is no longer open.
    ///
    /// # Errors
    /// The process was forked from the one that opened it.
    pub fn abort_for(mut self, delay: Duration) -> Result<bool, QueueError> {
        match self.by.take() {
            Some(by) => self.queue.abort(by, delay),
            None => Ok(false),
        }
    }

    /// Begins the time of the item anew: it returns to its queue when `limit` is over, or, if `limit` is `None`, when
    /// the `open_timeout` of the queue is. Returns false if it is no longer open.
    ///
    /// # Errors
    /// The process was forked from the one that opened it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_queue::embedded::{Options, Queues};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let jobs = Queues::open(folder.path(), &Options::default())?.queue("jobs")?;
    /// jobs.put(b"resize 17.png")?;
    /// let item = jobs.open(Duration::ZERO)?.expect("an item was put");
    /// assert!(item.touch(Some(Duration::from_secs(60)))?);
    /// assert!(item.abort_for(Duration::from_secs(5))?);
    /// assert!(jobs.open(Duration::ZERO)?.is_none()); // it waits
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn touch(&self, limit: Option<Duration>) -> Result<bool, QueueError> {
        match self.by {
            Some(by) => self.queue.touch(by, limit),
            None => Ok(false),
        }
    }

    /// Requeues the item as if it had not been delivered: its reader ends, and has not failed with it.
    pub fn give_back(mut self) {
        if let Some(by) = self.by.take() {
            self.queue.disconnect(by, EndedBy::Server);
        }
    }

    pub(super) fn into_item(self) -> Item {
        self.item.clone()
    }
}

impl Drop for OpenItem {
    fn drop(&mut self) {
        if let Some(by) = self.by.take() {
            self.queue.disconnect(by, EndedBy::Client);
        }
    }
}
