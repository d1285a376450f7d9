//! A client of a feed: the items that it missed, and those that are sent from then on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use millstream_flow::error::Cause;
use tokio::task::{JoinHandle, spawn_blocking};

use super::clients::Clients;
use super::history::Missed;
use super::item::Item;
use super::queue::Queue;

/// A client that receives items, until it is dropped.
pub(super) struct Client {
    pub(super) clients: Arc<Clients>,
    pub(super) queue: Arc<Queue>,
    pub(super) progress: Progress,
    /// The number of the first item that it does not have.
    pub(super) next: u64,
}

type Read = (Box<dyn Missed>, Result<Vec<Item>, Cause>);

/// What a client receives next.
pub(super) enum Progress {
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
