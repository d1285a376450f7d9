//! The clients of a feed: the items that each missed, and those that are sent from then on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use millstream_flow::error::{Cause, chain};
use tokio::task::{JoinHandle, spawn_blocking};

use super::history::{History, Missed};
use super::item::Item;
use super::queue::Queue;
use crate::lock;
use crate::refusal::Refusal;

/// The clients of a feed.
pub(crate) struct Clients {
    address: String,
    client_bytes_max: usize,
    history: Option<Box<dyn History>>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    queues: Vec<Arc<Queue>>,
    /// The number of the next item that is sent.
    next: u64,
    ended: bool,
}

impl Clients {
    pub(crate) fn new(address: &str, client_bytes_max: usize) -> Self {
        Clients {
            address: address.to_owned(),
            client_bytes_max,
            history: None,
            members: Mutex::default(),
        }
    }

    /// A feed whose clients can resume. The next item that is sent has the number `next`.
    #[cfg(feature = "gateway")]
    pub(crate) fn with_history(self, history: Box<dyn History>, next: u64) -> Self {
        lock(&self.members).next = next;
        Clients {
            history: Some(history),
            ..self
        }
    }

    /// Whether clients can resume.
    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Adds a client. With a history and an id it receives all items after that with this id, otherwise those that are
    /// sent from now on. Returns also the id from which it resumes if it loses the connection before the first item.
    pub(super) fn join(
        self: &Arc<Self>,
        after: Option<&str>,
    ) -> Result<(Client, Option<String>), Refusal> {
        let queue = Arc::new(Queue::default());
        let (progress, id) = match (&self.history, after) {
            (Some(history), Some(id)) => (Progress::Missed(history.after(id)?), None),
            (history, _) => {
                let mut members = lock(&self.members);
                let id = history.as_ref().map(|history| history.id(members.next));
                let id = id.transpose()?;
                members.add(&queue);
                (Progress::Joined, id)
            }
        };
        let client = Client {
            clients: Arc::clone(self),
            queue,
            progress,
            next: 0,
        };
        Ok((client, id))
    }

    /// Adds the queue of a client that has all items before number `next`, if no further ones were sent. Returns the
    /// number of the next item otherwise. The queue of a feed that has ended is at its end, too.
    fn join_at(&self, next: u64, queue: &Arc<Queue>) -> Result<(), u64> {
        let mut members = lock(&self.members);
        if !members.ended && next < members.next {
            return Err(members.next);
        }
        members.add(queue);
        Ok(())
    }

    fn leave(&self, queue: &Arc<Queue>) {
        let mut members = lock(&self.members);
        members.queues.retain(|member| !Arc::ptr_eq(member, queue));
    }

    /// Sends items to all clients, and removes those that do not keep up. Waits for none. `next` is the number of the
    /// item after them.
    pub(crate) fn send(&self, items: &[Item], next: u64) {
        let mut members = lock(&self.members);
        members.next = next;
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

    /// Logs why a client does not receive what it missed.
    fn warn(&self, error: &Cause) {
        tracing::warn!(
            "http feed {}: a client is disconnected: {}",
            self.address,
            chain(&**error)
        );
    }
}

impl Members {
    fn add(&mut self, queue: &Arc<Queue>) {
        if self.ended {
            queue.end()
        } else {
            self.queues.push(Arc::clone(queue))
        }
    }
}

/// A client that receives items, until it is dropped.
pub(super) struct Client {
    clients: Arc<Clients>,
    pub(super) queue: Arc<Queue>,
    progress: Progress,
    /// The number of the first item that it does not have.
    next: u64,
}

type Read = (Box<dyn Missed>, Result<Vec<Item>, Cause>);

/// What a client receives next.
enum Progress {
    /// What it missed.
    Missed(Box<dyn Missed>),
    /// What it missed, which is being read on a thread that may wait for a disk.
    Reading(JoinHandle<Read>),
    /// The items of its queue.
    Joined,
    /// Nothing: what it missed cannot be read.
    Ended,
}

impl Client {
    /// Takes the next items, at least one; `None` after the last.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Item>>> {
        loop {
            match &mut self.progress {
                Progress::Joined => {
                    let Some(mut items) = ready!(self.queue.poll_take(cx)) else {
                        return Poll::Ready(None);
                    };
                    // A client may name an item that was not sent yet when it joined.
                    items.retain(|item| item.number >= self.next);
                    if !items.is_empty() {
                        return Poll::Ready(Some(items));
                    }
                }
                Progress::Ended => return Poll::Ready(None),
                Progress::Reading(reading) => {
                    let items = match ready!(Pin::new(reading).poll(cx)) {
                        Ok((missed, read)) => {
                            self.progress = Progress::Missed(missed);
                            read
                        }
                        Err(error) => Err(error.into()),
                    };
                    match items {
                        Ok(items) if items.is_empty() => {}
                        Ok(items) => return Poll::Ready(Some(items)),
                        Err(error) => {
                            self.clients.warn(&error);
                            self.progress = Progress::Ended;
                        }
                    }
                }
                Progress::Missed(missed) => {
                    let next = missed.next();
                    match self.clients.join_at(next, &self.queue) {
                        Ok(()) => (self.progress, self.next) = (Progress::Joined, next),
                        Err(before) => self.read(before),
                    }
                }
            }
        }
    }

    /// Begins to read what the client missed, up to the item `before`.
    fn read(&mut self, before: u64) {
        let progress = std::mem::replace(&mut self.progress, Progress::Ended);
        if let Progress::Missed(mut missed) = progress {
            self.progress = Progress::Reading(spawn_blocking(move || {
                let read = missed.read(before);
                (missed, read)
            }));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.clients.leave(&self.queue);
    }
}
