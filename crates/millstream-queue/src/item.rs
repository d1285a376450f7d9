//! An item: bytes with a place in a queue.

use std::sync::Arc;

use crate::moment::Moment;
use crate::operation::Head;

/// An item as a client gets it. The bytes are shared by all queues that hold a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number in its queue; items are served in the order of their ids.
    pub id: u64,
    /// When it was added, wall clock in milliseconds.
    pub added_ms: u64,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// The client's own number.
    pub flags: u32,
    /// How often it was delivered and came back.
    pub deliveries: u32,
    /// The bytes.
    pub body: Arc<[u8]>,
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
        }
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

/// An item on its way into a queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewItem<'a> {
    /// The client's own number.
    pub flags: u32,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// Nobody gets it before; wall clock in milliseconds, 0: at once.
    pub due_ms: u64,
    /// The number that a source of items has given it, so that it comes in once: who numbers, and the number. Such an item
    /// is not delayed.
    pub from: Option<(u64, u64)>,
    /// The bytes.
    pub body: &'a [u8],
}
