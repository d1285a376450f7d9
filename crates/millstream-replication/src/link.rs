//! The link between a leader and its followers.
//!
//! The protocol (`message.rs`, `frames.rs`, `handshake.rs`, `secret.rs`) does no I/O; `docs/journal-replication.md` draws its bytes. The leader has
//! a thread for each direction of each connection, the follower has one thread. `tls.rs` encrypts the connections.

mod admit;
mod certificate;
mod connector;
mod conversation;
mod copy;
mod follow;
mod frames;
mod handshake;
mod history;
mod incoming;
mod leader;
mod limited;
mod message;
mod notify;
mod promote;
mod raw_key;
mod rejoin;
mod secret;
mod send;
mod serve;
mod served;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

use std::time::Duration;

use crate::{error, followers};

pub use follow::{FollowOptions, Followed, follow};
pub use promote::{Promoted, promote};
pub use rejoin::{JournalPlan, Rejoin, RejoinOptions};
pub use secret::Secret;
pub use serve::{ServeOptions, serve};
pub use served::with_companions;
pub use tls::{FollowerTls, LeaderTls};

/// After this many heartbeats of silence the other side is considered dead.
const DEAD_AFTER: u32 = 10;
/// The time that the other side has to end a connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a waiting thread checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
