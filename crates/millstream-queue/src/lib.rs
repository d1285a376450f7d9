//! Durable queues over the memcache protocol, compatible with Starling and Kestrel, for any memcache client.
//!
//! | module | what it does |
//! |---|---|
//! | [`protocol`] | parses requests and encodes replies |
//! | [`session`] | one connection: bytes in, bytes out |
//! | [`broker`] | all queues, the connections that wait, timed work |
//! | `queue` | one queue over its log: order, backlog, compaction |
//! | [`storage`] | where logs are kept, and the format of their records |
//! | [`replica`] | a second machine: the changes of all queues, and their copies |
//! | [`embedded`] | queues in process, for threads |
//! | `server` | the server: sockets around a broker |
//! | `flow` | queues as sources and sinks of flows |
//! | [`import`], [`salvage`] | queues of Starling and Kestrel; damaged queues |
//!
//! From `protocol` to `storage` no module does network I/O or reads a clock: the time is passed in as a [`Moment`].
//! So all visible behavior runs in tests, simulations and fuzzers as in the server.

#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod address;
#[doc(hidden)] // For the other crates of Millstream.
pub mod broker;
mod clock;
pub mod config;
mod connection;
pub mod embedded;
mod error;
#[cfg(feature = "flow")]
pub mod flow;
#[doc(hidden)] // For the other crates of Millstream.
pub mod import;
mod item;
mod moment;
#[doc(hidden)] // For the other crates of Millstream.
pub mod name;
#[cfg(feature = "server")]
#[doc(hidden)] // For the other crates of Millstream.
pub mod pair;
#[doc(hidden)] // For the other crates of Millstream.
pub mod protocol;
mod queue;
#[cfg(feature = "server")]
#[doc(hidden)] // For the other crates of Millstream.
pub mod replica;
mod round;
#[doc(hidden)] // For the other crates of Millstream.
pub mod salvage;
#[cfg(feature = "server")]
pub mod server;
pub mod session;
#[doc(hidden)] // For the other crates of Millstream.
pub mod storage;

pub use broker::counters::Counters;
pub use connection::ConnectionId;
pub use error::{Cause, QueueError};
pub use item::{Item, NewItem, history};
pub use moment::Moment;
