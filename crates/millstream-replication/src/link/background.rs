//! Journals that are served while their process does something else: the changes of queues, the state of a flow.
//!
//! ```
//! use millstream_journal::{Journal, Options};
//! use millstream_replication::{ServeOptions, Served};
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! let options = ServeOptions::new(([127, 0, 0, 1], 0).into(), []);
//! let mut served = Served::begin(&options, vec![("orders".to_owned(), journal.clone())])?;
//! let last = journal.writer()?.append(b"buy 100")?;
//! assert!(!served.wait(last, std::time::Duration::ZERO)?, "there is no follower");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_journal::{Journal, chain};
use millstream_link::LinkError;
use tracing::error;

use super::serve::{ServeOptions, serve_open};
use crate::{Followers, ReplicationError};

/// Journals that are served until this is dropped.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Served {
    address: SocketAddr,
    followers: Followers,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Serve these open journals, each by its name, as `options` say; those upstream first. Followers are waited for by
    /// the last one, which refers to the others.
    ///
    /// # Errors
    /// As for [`serve`](super::serve()); there is no journal; the system refuses a thread.
    pub fn begin(
        options: &ServeOptions,
        journals: Vec<(String, Journal)>,
    ) -> Result<Self, ReplicationError> {
        let Some((_, last)) = journals.last() else {
            return Err(ReplicationError::Usage(
                "there is no journal to serve".to_owned(),
            ));
        };
        let followers = Followers::of(last);
        let stop = Arc::new(AtomicBool::new(false));
        let (began, begun) = channel();
        let options = options.clone();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("millstream-replica".to_owned());
        let failed = |source| LinkError::connection("cannot start to serve", source);
        let thread = thread
            .spawn(move || serve_until(&options, &journals, &stopped, &began))
            .map_err(failed)?;
        let ended = || ReplicationError::from(failed(std::io::ErrorKind::Other.into()));
        let address = begun.recv().map_err(|_| ended())??;
        Ok(Served {
            address,
            followers,
            stop,
            thread: Some(thread),
        })
    }

    /// Where followers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The followers of the last journal.
    #[must_use]
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// Wait until a follower that counts has the record `sequence` of the last journal, for `limit` at most. Returns
    /// whether one has.
    ///
    /// # Errors
    /// As for [`Followers::wait`]: a copy was promoted.
    pub fn wait(&mut self, sequence: u64, limit: Duration) -> Result<bool, ReplicationError> {
        came(self.followers.wait(sequence, 1, Some(limit)))
    }

    /// The same for all followers that count, and one at least.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for_all(
        &mut self,
        sequence: u64,
        limit: Duration,
    ) -> Result<bool, ReplicationError> {
        came(self.followers.wait_for_all(sequence, Some(limit)))
    }
}

fn came(outcome: Result<(), ReplicationError>) -> Result<bool, ReplicationError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(ReplicationError::NotFollowed { .. }) => Ok(false),
        Err(failure) => Err(failure),
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Served(at {})", self.address)
    }
}

/// Serves until `stop` is raised; reports whether that has begun.
fn serve_until(
    options: &ServeOptions,
    journals: &[(String, Journal)],
    stop: &AtomicBool,
    began: &Sender<Result<SocketAddr, ReplicationError>>,
) {
    let mut is_ready = false;
    let served = serve_open(options, journals, stop, |address| {
        is_ready = true;
        // The thread that waits for it has not ended.
        let _ = began.send(Ok(address));
    });
    match served {
        Err(failure) if is_ready => {
            error!("followers are not served any more: {}", chain(&failure))
        }
        Err(failure) => drop(began.send(Err(failure))),
        Ok(()) => {}
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported.
            let _ = thread.join();
        }
    }
}
