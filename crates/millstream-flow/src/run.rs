//! Runs a flow: worker threads and their loops, stopping and failing.
//!
//! A worker alternates between timely steps, in which operators run, and its poller, in which it sleeps until a
//! socket, another worker or a deadline wakes it. Before it sleeps it sets a flag and steps once more: that
//! step finds everything that another worker sent before it could see the flag, and everything sent later comes
//! with a wake-up.

mod awaited;
pub(crate) mod build;
pub(crate) mod chain;
pub(crate) mod context;
pub mod control;
pub(crate) mod dead_letters;
mod departure;
mod edge;
pub(crate) mod edge_counts;
pub(crate) mod failures;
mod in_flight;
pub(crate) mod lag;
pub(crate) mod making;
mod members;
pub mod metrics;
mod opening;
mod options;
pub(crate) mod pace;
mod packet;
pub(crate) mod panics;
pub(crate) mod plan;
pub mod poller;
pub(crate) mod progress;
pub(crate) mod refused;
pub(crate) mod remote;
mod reports;
mod running;
pub(crate) mod segment;
mod signals;
pub(crate) mod sink;
pub(crate) mod source;
mod start;
#[doc(hidden)] // For the other crates of Millstream.
pub mod starting;
mod statuses;
mod version;
mod waiting;
#[doc(hidden)] // For the other crates of Millstream.
pub mod watch;
mod wire;
mod worker;

pub use awaited::Ending;
pub use options::{OnMetrics, Options, Packets, WORKERS_MAX};
pub use running::Running;
pub(crate) use start::{run_here, start};
