//! The link between a leader and its followers.
//!
//! The protocol (`message.rs`, `frames.rs`, `handshake.rs`) has no I/O in it; it is drawn in `docs/journal-replication.md`. Around it stand a
//! thread for each direction of each connection at the leader, and one thread at the follower.

mod admit;
mod call;
mod certificate;
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
mod promote;
mod raw_key;
mod rejoin;
mod secret;
mod send;
mod serve;
mod served;
mod session;
mod stream;
mod tell;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

use std::time::Duration;

use crate::{error, followers};

pub use follow::{FollowOptions, Followed, follow};
pub use promote::{Promoted, promote};
pub use rejoin::{Part, Rejoin, RejoinOptions};
pub use secret::Secret;
pub use serve::{ServeOptions, serve};
pub use served::with_companions;
pub use tls::{FollowerTls, LeaderTls};

/// After so many heartbeats of silence the other side is taken for dead.
const DEAD_AFTER: u32 = 10;
/// How long the other side may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
