//! What the broker knows about a connection: its open items, and its wait.

use std::collections::VecDeque;

/// A reference to a queue, which stays distinct when another queue reuses the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The id of no item.
const GONE: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The items that the connection has opened and neither confirmed nor aborted, the oldest first. Some may be open no longer, since
    /// their time was over or another connection has ended them by their ids: they keep their places, so that the `close` that was meant for
    /// one of them confirms none of the others.
    pub(crate) opens: VecDeque<(QueueId, u64)>,
    pub(crate) wait: Wait,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    #[default]
    None,
    /// The connection waits for this queue, until this time on the steady clock.
    Waiting { queue: QueueId, until_us: u64 },
    /// An item is held for the connection.
    Granted { queue: QueueId, id: u64 },
    /// The wait timed out, or the queue was deleted.
    Ended,
}

impl Connection {
    /// The number of items of this queue that were opened.
    #[inline]
    pub(crate) fn opens_of(&self, queue: QueueId) -> usize {
        if self.opens.is_empty() {
            0
        } else {
            self.opens.iter().filter(|(of, _)| *of == queue).count()
        }
    }

    /// The connection opens an item. If it had it open before, until its time was over, that was another delivery.
    #[inline]
    pub(crate) fn opened(&mut self, queue: QueueId, item: u64) {
        if !self.opens.is_empty() {
            self.lose(queue, item);
        }
        self.opens.push_back((queue, item));
    }

    /// An item is open no longer, though the connection has not ended that: its place stays.
    pub(crate) fn lose(&mut self, queue: QueueId, item: u64) {
        if let Some(open) = self.opens.iter_mut().find(|open| **open == (queue, item)) {
            open.1 = GONE;
        }
    }

    /// Removes and returns the item of this queue that was opened first.
    pub(crate) fn oldest_of(&mut self, queue: QueueId) -> Option<u64> {
        let at = self.opens.iter().position(|(of, _)| *of == queue)?;
        self.opens.remove(at).map(|(_, id)| id)
    }

    /// Removes the place of an item.
    pub(crate) fn forget(&mut self, queue: QueueId, item: u64) {
        if let Some(at) = self.opens.iter().position(|open| *open == (queue, item)) {
            self.opens.remove(at);
        }
    }
}
