//! An item that is somebody's own until it is confirmed.

use super::queue::Queue;
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;

/// An item that was opened. Dropped, it takes its place in the queue again, and counts as delivered once more.
#[derive(Debug)]
#[must_use = "an open item goes back at once if it is dropped"]
pub struct OpenItem {
    queue: Queue,
    item: Item,
    /// The connection that has it open; none once it has left the queue, or is no longer ours.
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

    /// All that is known about it.
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// Confirm it: it leaves the queue for good. False if it is somebody else's by now, because it was open for longer than the
    /// queue's `open_timeout`, or because the queue was deleted.
    ///
    /// # Errors
    /// The process was forked from the one that opened it.
    pub fn close(mut self) -> Result<bool, QueueError> {
        match self.by.take() {
            Some(by) => self.queue.close(by),
            None => Ok(false),
        }
    }

    /// It takes its place again, as if it were dropped.
    pub fn abort(self) {}

    pub(super) fn into_item(self) -> Item {
        self.item.clone()
    }
}

impl Drop for OpenItem {
    fn drop(&mut self) {
        if let Some(by) = self.by.take() {
            self.queue.disconnect(by);
        }
    }
}
