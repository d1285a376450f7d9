//! The clients of a feed.

use std::sync::{Arc, Mutex};

use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::queue::Queue;
use crate::lock;

/// The clients of a feed.
pub(crate) struct Clients {
    address: String,
    client_bytes_max: usize,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    queues: Vec<Arc<Queue>>,
    ended: bool,
}

/// A client that receives items, until it is dropped.
pub(super) struct Client {
    clients: Arc<Clients>,
    pub(super) queue: Arc<Queue>,
}

impl Clients {
    pub(crate) fn new(address: &str, client_bytes_max: usize) -> Self {
        Clients {
            address: address.to_owned(),
            client_bytes_max,
            members: Mutex::default(),
        }
    }

    /// Adds a client, which receives all items that are sent from now on.
    pub(super) fn join(self: &Arc<Self>) -> Client {
        let queue = Arc::new(Queue::default());
        let mut members = lock(&self.members);
        match members.ended {
            true => queue.end(),
            false => members.queues.push(Arc::clone(&queue)),
        }
        Client {
            clients: Arc::clone(self),
            queue,
        }
    }

    /// Sends items to all clients, and removes those that do not keep up. Waits for none.
    pub(crate) fn send(&self, items: &[Utf8Bytes]) {
        let mut members = lock(&self.members);
        members.queues.retain(|queue| {
            let keeps_up = queue.push(items, self.client_bytes_max);
            if !keeps_up {
                tracing::warn!(
                    "http feed {}: a client is disconnected that does not keep up: more than {} bytes wait for it",
                    self.address,
                    self.client_bytes_max
                );
            }
            keeps_up
        });
    }

    /// No items follow.
    pub(crate) fn end(&self) {
        let mut members = lock(&self.members);
        members.ended = true;
        members.queues.drain(..).for_each(|queue| queue.end());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut members = lock(&self.clients.members);
        members
            .queues
            .retain(|queue| !Arc::ptr_eq(queue, &self.queue));
    }
}
