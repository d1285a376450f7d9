//! An open item, which belongs to its reader until it is confirmed.

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
