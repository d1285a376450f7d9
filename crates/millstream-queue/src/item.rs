//! An item: bytes with a position in a queue.

pub mod history;

use std::sync::Arc;

use crate::item::history::{History, Origin, Reason};
use crate::moment::Moment;
use crate::storage::operation::Head;

/// An item as a client receives it. All queues with a copy share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// Its number in its queue; items are served in the order of their ids.
    pub id: u64,
    /// When it was added, wall clock in milliseconds.
    pub added_ms: u64,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// A number of the client.
    pub flags: u32,
    /// The number of deliveries after which it was requeued.
    pub deliveries: u32,
    /// The bytes.
    pub body: Arc<[u8]>,
    /// The item's history; `None` for an item that never failed and comes from no other queue.
    pub history: Option<Arc<History>>,
}

impl Item {
    pub(crate) fn new(id: u64, head: Head, deliveries: u32, body: Arc<[u8]>) -> Self {
        let Head {
            flags,
            added_ms,
            expiry_ms,
        } = head;
        Item {
            id,
            added_ms,
            expiry_ms,
            flags,
            deliveries,
            body,
            history: None,
        }
    }

    pub(crate) fn with_history(mut self, history: Option<History<&str>>) -> Self {
        self.history = history.map(|history| Arc::new(history.owned()));
        self
    }

    /// When the item first failed, in this queue or an earlier one, wall clock in milliseconds; 0 never.
    pub fn first_failed_ms(&self) -> u64 {
        let history = self.history.as_ref();
        history.map_or(0, |history| history.first_failed_ms)
    }

    /// The queue that the item left last, because it failed or expired there.
    pub fn origin(&self) -> Option<&Origin> {
        self.history.as_ref()?.origin.as_ref()
    }

    /// Sets the number of deliveries, and the time of the first failure if it is known and not set already.
    pub(crate) fn came_back(&mut self, count: u32, first_ms: u64) {
        self.deliveries = count;
        if first_ms != 0 && self.first_failed_ms() == 0 {
            let history = self.history.get_or_insert_default();
            Arc::make_mut(history).first_failed_ms = first_ms;
        }
    }

    /// The item's history in the queue to which it moves.
    pub(crate) fn history_after(&self, queue: &str, reason: Reason, now: Moment) -> History {
        let before = self.origin();
        // A queue for dead letters keeps items without their expiry: the history has that of the earlier queue.
        let expiry_ms = match before {
            Some(before) if self.expiry_ms == 0 => before.expiry_ms,
            _ => self.expiry_ms,
        };
        History {
            first_failed_ms: self.first_failed_ms(),
            origin: Some(Origin {
                queue: queue.into(),
                reason,
                left_ms: now.wall_ms,
                expiry_ms,
                deliveries: self
                    .deliveries
                    .saturating_add(before.map_or(0, |before| before.deliveries)),
            }),
        }
    }

    /// The item's expiry after a redrive, wall clock in milliseconds; 0 never. An expiry that is over is dropped: the
    /// item would expire at once.
    pub(crate) fn expiry_after_redrive_ms(&self, now: Moment) -> u64 {
        match self.origin() {
            None => self.expiry_ms,
            Some(origin) if origin.expiry_ms > now.wall_ms => origin.expiry_ms,
            Some(_) => 0,
        }
    }

    /// The memory of its history.
    #[inline]
    pub(crate) fn history_bytes(&self) -> u64 {
        let history = self.history.as_ref();
        history.map_or(0, |history| history.memory_bytes())
    }

    pub(crate) fn head(&self) -> Head {
        Head {
            flags: self.flags,
            added_ms: self.added_ms,
            expiry_ms: self.expiry_ms,
        }
    }

    #[inline]
    pub(crate) fn expired(&self, now: Moment) -> bool {
        self.expiry_ms != 0 && self.expiry_ms <= now.wall_ms
    }
}

/// An item that is put into a queue.
#[derive(Clone, Copy, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct NewItem<'a> {
    /// A number of the client.
    pub flags: u32,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// The time before which it is not served, wall clock in milliseconds; 0: no delay.
    pub due_ms: u64,
    /// The source of the item and its number there, so that it is put once. Such an item is not delayed.
    pub from: Option<(u64, u64)>,
    /// The item's history in other queues. Such an item is not numbered.
    pub history: Option<&'a Arc<History>>,
    /// What the queue remembers so that it takes the item once. Such an item is not numbered, and has no history.
    pub once: Option<[u8; 16]>,
    /// The bytes.
    pub body: &'a [u8],
}
