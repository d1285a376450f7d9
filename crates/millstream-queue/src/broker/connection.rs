//! What the broker knows about a connection: its open items, and its wait.

use std::collections::VecDeque;
use std::sync::Arc;

/// A reference to a queue, which stays distinct when another queue reuses the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// An item that a connection has opened.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) queue: QueueId,
    /// The name of the queue: also of one that was deleted since.
    name: Arc<str>,
    /// The item; `None` if it is open no longer.
    pub(crate) item: Option<u64>,
}

impl Place {
    /// Whether the connection opened it as an item of the queue with this name, which may be another one now.
    #[inline]
    pub(crate) fn is_of(&self, name: &str) -> bool {
        *self.name == *name
    }
}

#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The items that the connection has opened and neither confirmed nor aborted, the oldest first. Some may be open
    /// no longer, since their time was over, another connection has ended them by their ids, or their queue was
    /// deleted: they keep their places, so that the `close` that was meant for one of them confirms none of the others.
    pub(crate) opens: VecDeque<Place>,
    pub(crate) wait: Wait,
    /// The queues of which the next open gives up the place of an item that is open no longer.
    pub(crate) gives_up: Vec<QueueId>,
    /// Further queues for which it waits.
    pub(crate) also: Vec<QueueId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wait {
    #[default]
    None,
    /// The connection waits for this queue, until this time on the steady clock.
    Waiting {
        queue: QueueId,
        until_us: u64,
    },
    /// The search for an item goes on in the next round.
    Searching {
        queue: QueueId,
    },
    /// A queue is being created for a set of the connection.
    Creating,
    /// A fan-out queue that a `get` mentions is being created; then it is.
    Subscribing,
    Subscribed,
    /// An item is held for the connection.
    Granted {
        queue: QueueId,
        id: u64,
    },
    /// The wait timed out, or the queue was deleted.
    Ended,
}

impl Connection {
    /// The number of places of this queue.
    #[inline]
    pub(crate) fn opens_of(&self, name: &str) -> usize {
        if self.opens.is_empty() {
            0
        } else {
            self.opens.iter().filter(|place| place.is_of(name)).count()
        }
    }

    /// The connection opens an item of the queue with this name. If it had it open before, until its time was over,
    /// that was another delivery.
    #[inline]
    pub(crate) fn opened(&mut self, queue: QueueId, name: Arc<str>, item: u64) {
        if !self.opens.is_empty() {
            self.lose(queue, item);
        }
        self.opens.push_back(Place {
            queue,
            name,
            item: Some(item),
        });
    }

    /// An item is open no longer, though the connection has not ended that: its place stays.
    pub(crate) fn lose(&mut self, queue: QueueId, item: u64) {
        if let Some(at) = self.place_of(queue, item) {
            self.opens[at].item = None;
        }
    }

    /// Removes the first place of these queues, and returns it.
    pub(crate) fn oldest_of<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<Place> {
        let mut places = self.opens.iter();
        let at = places.position(|place| names.clone().any(|name| place.is_of(name)))?;
        self.opens.remove(at)
    }

    /// Removes the place of an item.
    pub(crate) fn forget(&mut self, queue: QueueId, item: u64) {
        if let Some(at) = self.place_of(queue, item) {
            self.opens.remove(at);
        }
    }

    fn place_of(&self, queue: QueueId, item: u64) -> Option<usize> {
        let is_it = |place: &Place| place.queue == queue && place.item == Some(item);
        self.opens.iter().position(is_it)
    }
}
