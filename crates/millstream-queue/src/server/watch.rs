//! What a server publishes about itself once a second, for a page and for metrics.
//!
//! The thread of the connections writes a complete set of figures; readers on other threads take the newest one. No
//! request of a client waits for a reader, however many there are.
//!
//! ```
//! use millstream_queue::server::{Server, ServerOptions};
//!
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let server = Server::start(ServerOptions { listen: Vec::new(), ..ServerOptions::new(directory) })?;
//! assert_eq!(server.watch().newest().status, "up");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::broker::counters::{Counters, Latencies};
pub use crate::broker::figures::{Holder, QueueFigures};
pub use crate::queue::refusals::RefusedItems;
use tokio::sync::{mpsc, oneshot};

use super::error::ServerError;
use super::requests::{Reply, Request, send};
use crate::clock;

/// The number of queues whose items are published at a time.
const GLANCES_MAX: usize = 8;
/// The time after which the items of a queue are no longer published, unless they are requested again.
const GLANCE_US: u64 = 10_000_000;

/// The figures of a server at one moment.
#[derive(Clone, Debug, Default)]
pub struct ServerFigures {
    /// The number of the publication; 0 before the first one.
    pub number: u64,
    /// Milliseconds since the epoch.
    pub time_ms: u64,
    /// Milliseconds since the server started.
    pub uptime_ms: u64,
    /// `up`, `read only` or `quiescent`.
    pub status: &'static str,
    /// Whether nothing is done, since not all followers that count have acknowledged for a second
    /// (`--commit-on-replica`).
    pub is_held: bool,
    /// Whether nothing is answered, since the lease could not be renewed (`--arbiter`).
    pub is_lease_over: bool,
    /// Whether no other machine has all that is answered, so that none could take over (`--arbiter`).
    pub is_alone: bool,
    /// Clients that are connected.
    pub connections: u64,
    /// The memory of all items in bytes.
    pub memory_bytes: u64,
    /// The most that it may be; `u64::MAX` without a limit.
    pub memory_bytes_max: u64,
    /// Whether clients authenticate.
    pub authenticates: bool,
    /// What was counted for all queues together.
    pub counters: Counters,
    /// How long requests and syncs took.
    pub latencies: Latencies,
    /// The open queues, by name.
    pub queues: Vec<QueueFigures>,
    /// The queues that could not be opened: name, and reason.
    pub closed: Vec<(String, String)>,
    /// The items of the queues that were asked for.
    pub glances: BTreeMap<String, Glance>,
}

/// The first items of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Items that wait, the next one first. Items that are only on the disk are not among them.
    pub waiting: Vec<GlancedItem>,
    /// Items that connections have open, the oldest first.
    pub open: Vec<GlancedItem>,
}

/// The beginning of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlancedItem {
    /// Its number in its queue.
    pub id: u64,
    /// When it was added, milliseconds since the epoch.
    pub added_ms: u64,
    /// When it expires, milliseconds since the epoch; 0 never.
    pub expiry_ms: u64,
    /// How often it was delivered and requeued.
    pub deliveries: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Its first bytes, at most 512.
    pub head: Vec<u8>,
    /// The number and the address of the connection that has it open.
    pub holder: Option<(u64, String)>,
}

/// A machine that follows the one that serves the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Following {
    /// The name of the one that serves, or did last.
    pub leader: String,
    /// Why none serves, as far as this one knows; empty where nothing is the matter.
    pub trouble: String,
}

/// The figures of a server, for readers on other threads. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServerWatch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    newest: Mutex<Arc<ServerFigures>>,
    /// The queues whose items are wanted, and until when on the steady clock.
    wanted: Mutex<BTreeMap<String, u64>>,
    /// What this machine does in place of serving.
    following: Mutex<Option<Following>>,
    /// To the server that runs.
    requests: Mutex<Option<mpsc::Sender<Request>>>,
}

/// Where the answer to a request arrives.
type Requested<T> = Result<oneshot::Receiver<Result<T, ServerError>>, ServerError>;

async fn answer<T>(requested: Requested<T>) -> Result<T, ServerError> {
    requested?.await.unwrap_or(Err(ServerError::NotRunning))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is complete at every moment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerWatch {
    /// Returns the newest figures; all zero before the server runs.
    #[must_use]
    pub fn newest(&self) -> Arc<ServerFigures> {
        Arc::clone(&lock(&self.0.newest))
    }

    /// Asks for the first items of a queue. They are in the figures of the next 10 s; the newest eight requests count.
    pub fn ask(&self, queue: &str) {
        let mut wanted = lock(&self.0.wanted);
        wanted.insert(queue.to_owned(), clock::steady_us() + GLANCE_US);
        if wanted.len() > GLANCES_MAX {
            let first = wanted.iter().min_by_key(|(_, until_us)| **until_us);
            if let Some(name) = first.map(|(name, _)| name.clone()) {
                wanted.remove(&name);
            }
        }
    }

    /// Moves the oldest items of the queue `from` to the end of the queue `to`, as a client's `redrive` does: at most
    /// `items_max` and [`REDRIVE_ITEMS_MAX`](crate::broker::REDRIVE_ITEMS_MAX). The answer, the number of moved items,
    /// comes once they are durable.
    ///
    /// # Errors
    /// [`ServerError::Broker`]: as [`Broker::redrive`](crate::broker::Broker::redrive), an invalid name, or a failed
    /// sync; otherwise [`ServerError::NotRunning`] or [`ServerError::Busy`].
    pub fn redrive(
        &self,
        from: &str,
        to: &str,
        items_max: u64,
    ) -> impl Future<Output = Result<u64, ServerError>> + Send + use<> {
        let from = from.to_owned();
        let to = to.to_owned();
        answer(self.request(move |reply| Request::Redrive {
            from,
            to,
            items_max,
            reply,
        }))
    }

    /// Reads configuration, credentials and certificates again, as a client's `reload` does. The answer is the settings
    /// that need a restart, each with the reason.
    ///
    /// # Errors
    /// [`ServerError::Reload`]: the first invalid file; nothing changes. Otherwise [`ServerError::NotRunning`] or
    /// [`ServerError::Busy`].
    pub fn reload(&self) -> impl Future<Output = Result<Vec<String>, ServerError>> + Send + use<> {
        answer(self.request(Request::Reload))
    }

    /// Sends a request to the server, and returns where its answer arrives.
    fn request<T: Send + 'static>(&self, make: impl FnOnce(Reply<T>) -> Request) -> Requested<T> {
        let (reply, answer) = oneshot::channel();
        let requests = lock(&self.0.requests);
        let requests = requests.as_ref().ok_or(ServerError::NotRunning)?;
        // It is no error when nothing waits for the answer any more.
        let reply = Box::new(move |outcome| drop(reply.send(outcome)));
        send(requests, make(reply))?;
        Ok(answer)
    }

    /// Requests go to this server from now on.
    pub(super) fn connect(&self, requests: mpsc::Sender<Request>) {
        *lock(&self.0.requests) = Some(requests);
    }

    /// The machine that is followed, while this one does not serve.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn following(&self) -> Option<Following> {
        lock(&self.0.following).clone()
    }

    /// This machine does not serve, and follows another one.
    pub(crate) fn follow(&self, following: Following) {
        *lock(&self.0.newest) = Arc::default();
        *lock(&self.0.requests) = None;
        *lock(&self.0.following) = Some(following);
    }

    pub(super) fn set(&self, figures: ServerFigures) {
        *lock(&self.0.following) = None;
        *lock(&self.0.newest) = Arc::new(figures);
    }

    pub(super) fn number(&self) -> u64 {
        lock(&self.0.newest).number
    }

    /// The queues whose items are wanted.
    pub(super) fn wanted(&self, now_us: u64) -> Vec<String> {
        let mut wanted = lock(&self.0.wanted);
        wanted.retain(|_, until_us| *until_us > now_us);
        wanted.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_requests_for_items_count_for_a_while() {
        let watch = ServerWatch::default();
        for number in 0..GLANCES_MAX + 3 {
            watch.ask(&format!("q{number}"));
        }
        let now_us = clock::steady_us();
        let wanted = watch.wanted(now_us);
        assert_eq!(wanted.len(), GLANCES_MAX);
        assert!(wanted.contains(&format!("q{}", GLANCES_MAX + 2)));
        assert!(watch.wanted(now_us + 2 * GLANCE_US).is_empty());
    }
}
