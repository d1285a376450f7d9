//! Journals between machines: a leader serves its journals, followers keep live copies of them.
//!
//! A copy has the records of the original with their sequence numbers and times, and goes on where it was after any break. What a
//! follower has acknowledged is known to every process of the leader's machine, which may wait for it ([`Followers`]).
//!
//! The protocol (`message.rs`, `frames.rs`, `handshake.rs`) has no I/O in it; it is drawn in `docs/journal-replication.md`. Around it stand a
//! thread for each direction of each connection at the leader, and one thread at the follower.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use millstream::journal::{Journal, Options};
//! use millstream::replication::{FollowOptions, ServeOptions, follow, serve};
//!
//! # let folder = tempfile::tempdir()?;
//! let (orders, copy) = (folder.path().join("orders"), folder.path().join("copy"));
//! let journal = Journal::open(&orders, Options::default())?;
//! journal.writer()?.append(b"buy 100")?;
//!
//! let stop = AtomicBool::new(false);
//! let options = ServeOptions::new(([127, 0, 0, 1], 0).into(), [orders]);
//! let (tell, told) = std::sync::mpsc::channel();
//! std::thread::scope(|scope| {
//!     let leader = scope.spawn(|| serve(&options, &stop, |address| tell.send(address).unwrap()));
//!     let mut options = FollowOptions::new("127.0.0.1", told.recv()?.port(), &copy);
//!     options.once = true;
//!     let followed = follow(&options, &AtomicBool::new(false))?;
//!     assert_eq!((followed[0].records, followed[0].acknowledged), (1, 1));
//!     stop.store(true, Ordering::Relaxed);
//!     leader.join().expect("no panic")?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admit;
mod call;
mod certificate;
mod copy;
mod error;
mod follow;
mod followers;
mod frames;
mod handshake;
mod history;
mod incoming;
mod message;
mod promote;
mod rejoin;
mod secret;
mod send;
mod serve;
mod session;
mod stream;
mod tell;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

use std::time::Duration;

pub use error::{Reason, ReplicationError};
pub use follow::{FollowOptions, Followed, follow};
pub use followers::Followers;
pub use promote::{Promoted, promote};
pub use rejoin::{Part, Rejoin, RejoinOptions};
pub use secret::Secret;
pub use serve::{ServeOptions, serve, with_companions};
pub use tls::FollowerTls;

/// After so many heartbeats of silence the other side is taken for dead.
const DEAD_AFTER: u32 = 10;
/// How long the other side may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
