//! The link between a leader and its followers.
//!
//! The protocol (`message.rs`, `frames.rs`, `handshake.rs`) does no I/O; `docs/journal-replication.md` draws its bytes.
//! The leader has a thread for each direction of each connection, the follower has one thread. `millstream-link`
//! encrypts and authenticates the connections.

mod admit;
mod background;
mod connector;
mod conversation;
mod copy;
mod follow;
mod frames;
mod handshake;
mod history;
mod incoming;
mod leader;
mod membership;
mod message;
mod mirror;
mod notify;
mod promote;
mod rejoin;
mod send;
mod serve;
mod served;
mod session;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_link::Protocol;

use crate::{error, followers};

pub use background::Served;
pub use follow::{FollowOptions, Followed, follow};
pub use millstream_link::{CallerTls as FollowerTls, ListenerTls as LeaderTls, Secret};
pub use mirror::Mirror;
pub use promote::{Promoted, journals_of, lead, promote};
pub use rejoin::{JournalPlan, Rejoin, RejoinOptions};
pub use serve::{ServeOptions, serve};
pub use served::with_companions;

/// After this many heartbeats of silence the other side is considered dead.
const DEAD_AFTER: u32 = 10;
/// The time that both sides have for the handshake.
const GREETING: Duration = Duration::from_secs(10);
/// How often a waiting thread checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The words of replication, and the labels of its proofs.
static PROTOCOL: Protocol = Protocol {
    magic: b"MSFOLLOW",
    version: message::VERSION,
    label: "replication 1",
    listener: "leader",
    caller: "follower",
    client_authorities: "--tls-client-ca",
    closed_early: " while TLS was set up: it may be another program, or have as many followers as it may have",
};

/// The end of a handshake that begins now.
fn deadline_ns() -> u64 {
    monotonic_ns() + GREETING.as_nanos() as u64
}
