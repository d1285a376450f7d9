//! Taking items from a queue in process, at once or after a wait.

use std::time::Duration;

use super::open_item::OpenItem;
use super::queue::{Queue, millis};
use crate::broker::{EndedBy, GetOutcome};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::protocol::GetKey;

impl Queue {
    /// Takes the next item, which leaves the queue for good; waits for at most `wait`. Waiters are served in FIFO
    /// order.
    ///
    /// # Errors
    /// The storage fails, or the queue is closed; nothing was taken.
    pub fn get(&self, wait: Duration) -> Result<Option<Vec<u8>>, QueueError> {
        Ok(self.get_item(wait)?.map(|item| item.body.to_vec()))
    }

    /// Takes the next item, with all its properties.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_item(&self, wait: Duration) -> Result<Option<Item>, QueueError> {
        Ok(self.wait(wait, false)?.wait()?.map(OpenItem::into_item))
    }

    /// Opens the next item: it is requeued when the [`OpenItem`] is dropped, unless that is closed.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn open(&self, wait: Duration) -> Result<Option<OpenItem>, QueueError> {
        self.wait(wait, true)?.wait()
    }

    /// Begins to wait for the next item, for a caller that does other work meanwhile. With `open` the item is opened
    /// as by [`open`](Self::open), without it is taken as by [`get`](Self::get).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn wait(&self, wait: Duration, open: bool) -> Result<Waiting, QueueError> {
        Waiting::begin(self, wait, open)
    }
}

/// A wait of this length has no time limit.
const FOR_EVER_MS: u64 = u64::MAX / 2_000;

/// A waiter of a queue. When it is dropped, the wait ends, and an item that is held for it is served to the next
/// waiter.
#[derive(Debug)]
pub struct Waiting {
    queue: Queue,
    open: bool,
    wait_ms: u64,
    /// `None` after the end of the wait.
    by: Option<ConnectionId>,
    got: Option<OpenItem>,
}

impl Waiting {
    pub(super) fn begin(queue: &Queue, wait: Duration, open: bool) -> Result<Self, QueueError> {
        let mut waiting = Waiting {
            queue: queue.clone(),
            open,
            wait_ms: millis(wait).min(FOR_EVER_MS),
            by: None,
            got: None,
        };
        let (by, got) = queue.open_directory().with_broker(|broker, now| {
            let by = broker.connect();
            let key = waiting.key();
            // Each open item has a connection of its own: there is no limit on how many a process has open.
            let got = broker.get(by, &key, now);
            let keeps = match &got {
                Ok(GetOutcome::Waiting | GetOutcome::Searching) => true,
                Ok(GetOutcome::Item(_)) => open,
                _ => false,
            };
            if !keeps {
                broker.disconnect(by, EndedBy::Client, now);
            }
            Ok((by, got?))
        })?;
        waiting.end(by, got);
        Ok(waiting)
    }

    fn key(&self) -> GetKey<'_> {
        GetKey {
            name: self.queue.name(),
            wait_ms: self.wait_ms,
            open: self.open,
            ..GetKey::default()
        }
    }

    /// Notes the outcome of the wait.
    fn end(&mut self, by: ConnectionId, got: GetOutcome) {
        match got {
            GetOutcome::Waiting | GetOutcome::Searching => self.by = Some(by),
            GetOutcome::Item(item) => {
                let by = self.open.then_some(by);
                self.got = Some(OpenItem::new(self.queue.clone(), item, by));
            }
            // A key of this module names one queue, which the calling thread creates.
            GetOutcome::ItemOf(..)
            | GetOutcome::Creating
            | GetOutcome::Nothing
            | GetOutcome::Refused
            | GetOutcome::NotOpen => {}
        }
    }

    /// Waits for at most `limit`, and no longer than the time given at the beginning. Returns whether the wait has
    /// ended.
    ///
    /// # Errors
    /// As for [`Queue::get`].
    pub fn has_ended(&mut self, limit: Duration) -> Result<bool, QueueError> {
        let Some(by) = self.by else {
            return Ok(true);
        };
        let directory = self.queue.open_directory();
        directory.check_process()?;
        directory.sleep(by, limit);
        let key = self.key();
        let got = directory.with_broker(|broker, now| {
            let got = broker.resume(by, &key, now)?;
            let got = got.filter(|got| !matches!(got, GetOutcome::Waiting | GetOutcome::Searching));
            if got.is_some() && !(self.open && matches!(got, Some(GetOutcome::Item(_)))) {
                broker.disconnect(by, EndedBy::Client, now);
            }
            Ok(got)
        })?;
        let Some(got) = got else {
            return Ok(false);
        };
        self.by = None;
        self.end(by, got);
        Ok(true)
    }

    /// Returns the item after the end of the wait, if there is one. An item that was not opened has left the queue.
    pub fn take(&mut self) -> Option<OpenItem> {
        self.got.take()
    }

    /// Waits to the end.
    ///
    /// # Errors
    /// As for [`Queue::get`].
    pub fn wait(mut self) -> Result<Option<OpenItem>, QueueError> {
        while !self.has_ended(Duration::MAX)? {}
        Ok(self.take())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(by) = self.by.take() {
            // An item that is held for the waiter is requeued.
            self.queue.disconnect(by, EndedBy::Client);
        }
    }
}
