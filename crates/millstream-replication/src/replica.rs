//! The state of a flow for followers on other machines: `millstream run --replica`.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_flow::Recovery;
//! use millstream_replication::{ServeOptions, StateReplica};
//!
//! let served = StateReplica::new(ServeOptions::new(([127, 0, 0, 1], 7750).into(), []));
//! let recovery = Recovery::new("state").replica(Arc::new(served)).commit_on_replica(true);
//! # drop(recovery);
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_flow::checkpoint::{Replica, Serving};
use millstream_flow::error::Cause;
use millstream_journal::Journal;
use tracing::{error, info};

use crate::{Followers, ReplicationError, ServeOptions, serve_open};

/// Serves the state of a flow to followers, as `millstream state follow` is one.
#[derive(Clone, Debug)]
pub struct StateReplica {
    options: ServeOptions,
}

impl StateReplica {
    /// Serves at the address, and to the followers, of these options; their journals are left out.
    #[must_use]
    pub fn new(options: ServeOptions) -> Self {
        StateReplica { options }
    }
}

impl Replica for StateReplica {
    fn serve(&self, journals: Vec<(String, Journal)>) -> Result<Box<dyn Serving>, Cause> {
        let (_, last) = journals.last().ok_or("there is no journal to serve")?;
        let last = last.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (began, begun) = channel();
        let (options, stopped) = (self.options.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("millstream-replica".to_owned());
        let thread = thread.spawn(move || serve_until(&options, &journals, &stopped, &began))?;
        let served = Served {
            followers: Followers::of(&last),
            last,
            stop,
            thread: Some(thread),
        };
        begun.recv()??;
        Ok(Box::new(served))
    }
}

/// Serves until `stop` is raised; reports whether that has begun.
fn serve_until(
    options: &ServeOptions,
    journals: &[(String, Journal)],
    stop: &AtomicBool,
    began: &Sender<Result<(), ReplicationError>>,
) {
    let mut is_ready = false;
    let served = serve_open(options, journals, stop, |address| {
        is_ready = true;
        info!("the state is served to followers at {address}");
        // The run that waits for it has not ended.
        let _ = began.send(Ok(()));
    });
    match served {
        Err(failure) if is_ready => error!("the state is not served any more: {failure}"),
        served => drop(began.send(served)),
    }
}

/// The state of a run that is served.
struct Served {
    followers: Followers,
    /// The journal that refers to the others.
    last: Journal,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving for Served {
    fn wait(&mut self, limit: Duration) -> Result<bool, Cause> {
        let Some(last) = self.last.next()?.checked_sub(1) else {
            return Ok(true);
        };
        match self.followers.wait(last, 1, Some(limit)) {
            Ok(()) => Ok(true),
            Err(ReplicationError::NotFollowed { .. }) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
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
