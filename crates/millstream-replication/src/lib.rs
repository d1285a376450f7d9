//! Journals between machines: a leader serves its journals, followers keep live copies of them.
//!
//! A copy has the records of the original with their sequence numbers and times, and resumes at its position after any
//! break. The position that a follower has acknowledged is known to every process of the leader's machine, which may
//! wait for it ([`Followers`]).
//!
//! The connections need the feature `link`, which is on by default. Without it there is only [`Followers`], and no TLS.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use millstream_journal::{Journal, Options};
//! use millstream_replication::{FollowOptions, ServeOptions, follow, serve};
//!
//! # let folder = tempfile::tempdir()?;
//! let (orders, copy) = (folder.path().join("orders"), folder.path().join("copy"));
//! let journal = Journal::open(&orders, Options::default())?;
//! journal.writer()?.append(b"buy 100")?;
//!
//! let stop = AtomicBool::new(false);
//! let options = ServeOptions::new(([127, 0, 0, 1], 0).into(), [orders]);
//! let (ready, address) = std::sync::mpsc::channel();
//! std::thread::scope(|scope| {
//!     let leader = scope.spawn(|| serve(&options, &stop, |address| ready.send(address).unwrap()));
//!     let mut options = FollowOptions::new("127.0.0.1", address.recv()?.port(), &copy);
//!     options.once = true;
//!     let followed = follow(&options, &AtomicBool::new(false))?;
//!     assert_eq!((followed[0].records, followed[0].acknowledged), (1, 1));
//!     stop.store(true, Ordering::Relaxed);
//!     leader.join().expect("no panic")?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "arbiter")]
#[doc(hidden)] // For the other crates of Millstream.
pub mod arbiter;
mod error;
mod followers;
#[cfg(feature = "link")]
mod link;
#[cfg(feature = "flow")]
mod replica;

pub use error::{Reason, ReplicationError, Uncounted};
pub use followers::{Follower, Followers, Standing};
#[cfg(feature = "link")]
pub use link::{
    FollowOptions, Followed, FollowerTls, JournalPlan, LeaderTls, Mirror, Promoted, Rejoin,
    RejoinOptions, Secret, ServeOptions, Served, follow, journals_of, lead, promote, serve,
    with_companions,
};
#[cfg(feature = "flow")]
pub use replica::StateReplica;
