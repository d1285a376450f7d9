//! Where requests wait for the replies of the flow.
//!
//! The source and the sink of the replies share a desk, and its server: the last of them to end stops it.
//!
//! Invariant: in a run with a state directory a reply is sent after the epoch of its item is committed, so that no
//! crash rolls back what it says.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::reply::Reply;
use crate::lock;
use crate::server::Server;

/// The requests that wait for replies. It lasts for all runs of a source.
#[derive(Default)]
pub(super) struct Desk {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// How many hold the server.
    holders: usize,
    server: Option<Server>,
    waiting: HashMap<String, oneshot::Sender<Reply>>,
    /// Replies by the epoch whose commit sends them.
    prepared: BTreeMap<u64, Vec<Reply>>,
}

impl Desk {
    /// Keeps the server at work until what is returned ends.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        lock(&self.open).holders += 1;
        Held(Arc::clone(self))
    }

    /// Sets the server that the holders keep at work.
    pub(super) fn serve(&self, server: Server) {
        lock(&self.open).server = Some(server);
    }

    /// A place in which a request waits; after the end it waits for nothing.
    pub(super) fn wait(self: &Arc<Self>, request: &str) -> Waiting {
        let (sender, receiver) = oneshot::channel();
        let mut open = lock(&self.open);
        if open.holders > 0 {
            open.waiting.insert(request.to_owned(), sender);
        }
        drop(open);
        Waiting {
            desk: Arc::clone(self),
            request: request.to_owned(),
            receiver,
        }
    }

    /// Sends replies. A request that is answered, gone, or of an earlier run needs none.
    pub(super) fn send(&self, replies: impl IntoIterator<Item = Reply>) {
        let mut open = lock(&self.open);
        for reply in replies {
            if let Some(sender) = open.waiting.remove(&reply.request) {
                let _ = sender.send(reply);
            }
        }
    }

    /// Keeps replies until their epoch is committed.
    pub(super) fn prepare(&self, epoch: u64, replies: Vec<Reply>) {
        if !replies.is_empty() {
            let mut open = lock(&self.open);
            open.prepared.entry(epoch).or_default().extend(replies);
        }
    }

    /// Sends the replies of all epochs up to this one.
    pub(super) fn commit(&self, epoch: u64) {
        let mut open = lock(&self.open);
        let later = open.prepared.split_off(&(epoch + 1));
        let ready = std::mem::replace(&mut open.prepared, later);
        drop(open);
        self.send(ready.into_values().flatten());
    }

    /// One that held the server ends. The last one stops it: what still waits is answered without a reply.
    fn release(&self) {
        let mut open = lock(&self.open);
        open.holders -= 1;
        if open.holders == 0 {
            let ended = std::mem::take(&mut *open);
            drop(open);
            drop((ended.waiting, ended.prepared));
            // Its thread may need the lock.
            drop(ended.server);
        }
    }
}

/// Keeps the server of a desk at work.
pub(super) struct Held(Arc<Desk>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// A request that waits for its reply.
pub(super) struct Waiting {
    desk: Arc<Desk>,
    request: String,
    receiver: oneshot::Receiver<Reply>,
}

impl Waiting {
    /// Returns the reply; `None` if the flow sends none within `limit`, or ends before.
    pub(super) async fn reply(mut self, limit: Duration) -> Option<Reply> {
        timeout(limit, &mut self.receiver).await.ok()?.ok()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.desk.open).waiting.remove(&self.request);
    }
}
