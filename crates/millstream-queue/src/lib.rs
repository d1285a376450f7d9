//! Durable queues over the memcache protocol: what Starling and Kestrel did, for any memcache client.
//!
//! The core has no I/O. [`protocol`] makes requests of bytes; [`session`] is one connection, bytes in and bytes out; [`broker`]
//! are all queues and who waits for them; [`storage`] is the seam to where items are kept. The time is handed in as
//! a [`Moment`]. So everything that clients can see runs in tests, simulations and fuzzers as it does in the server.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
pub mod broker;
mod clock;
pub mod config;
mod connection;
pub mod embedded;
mod error;
#[cfg(feature = "flow")]
pub mod flow;
pub mod import;
mod item;
mod moment;
pub mod name;
pub mod protocol;
mod queue;
pub mod salvage;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
pub mod storage;

pub use broker::counters::Counters;
pub use connection::ConnectionId;
pub use error::{Cause, QueueError};
pub use item::{Item, NewItem, history};
pub use moment::Moment;
