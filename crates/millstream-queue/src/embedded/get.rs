//! Taking items from a queue in process, at once or after a wait.

use std::time::Duration;

use super::open_item::OpenItem;
use super::queue::{Queue, millis};
use crate::broker::GetOutcome;
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::protocol::GetKey;

impl Queue {
    /// Take the next item; wait `wait` for it at most. Who waits first is served first. It has left the queue for good.
    ///
    /// # Errors
    /// The storage refuses, or the queue is kept closed; nothing was taken.
    pub fn get(&self, wait: Duration) -> Result<Option<Vec<u8>>, QueueError> {
        Ok(self.get_item(wait)?.map(|item| item.body.to_vec()))
    }

    /// The same, with all that is known about the item.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_item(&self, wait: Duration) -> Result<Option<Item>, QueueError> {
        Ok(self.wait(wait, false)?.wait()?.map(OpenItem::into_item))
    }

    /// Take the next item, but only for as long as the [`OpenItem`] lives, unless that is closed.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn open(&self, wait: Duration) -> Result<Option<OpenItem>, QueueError> {
        self.wait(wait, true)?.wait()
    }

    /// Stand in line for the next item, for who has something else to look at while it waits. `open` as [`open`](Self::open) or
    /// else as [`get`](Self::get).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn wait(&self, wait: Duration, open: bool) -> Result<Waiting, QueueError> {
        Waiting::begin(self, wait, open)
    }
}

/// So long a wait is without an end.
const FOR_EVER_MS: u64 = u64::MAX / 2_000;

/// Somebody in the line of a queue. Dropped, it waits no more, and what it was to get goes to the next.
#[derive(Debug)]
pub struct Waiting {
    queue: Queue,
    open: bool,
    wait_ms: u64,
    /// None once it has ended.
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
            let got = match open {
                // Each open item has a connection of its own: no limit on how many one may have.
                true => broker.monitor(by, &key, usize::MAX, now),
                false => broker.get(by, &key, now),
            };
            let keeps = match &got {
                Ok(GetOutcome::Waiting) => true,
                Ok(GetOutcome::Item(_)) => open,
                _ => false,
            };
            if !keeps {
                broker.disconnect(by, now);
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

    /// Take what came of the wait.
    fn end(&mut self, by: ConnectionId, got: GetOutcome) {
        match got {
            GetOutcome::Waiting => self.by = Some(by),
            GetOutcome::Item(item) => {
                let by = self.open.then_some(by);
                self.got = Some(OpenItem::new(self.queue.clone(), item, by));
            }
            GetOutcome::Nothing | GetOutcome::Refused => {}
        }
    }

    /// Wait `limit` at most, and no longer than was said at the beginning; whether the wait has ended.
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
            if got.is_some() && !(self.open && matches!(got, Some(GetOutcome::Item(_)))) {
                broker.disconnect(by, now);
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

    /// What came of the wait, once it has ended. What was not opened is closed already.
    pub fn take(&mut self) -> Option<OpenItem> {
        self.got.take()
    }

    /// Wait to the end.
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
            // It waits no more: what is held for it goes back.
            self.queue.disconnect(by);
        }
    }
}
