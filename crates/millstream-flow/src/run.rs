//! Runs a flow: worker threads and their loops, stopping and failing.
//!
//! A worker alternates between timely steps, in which operators run, and its poller, in which it sleeps until a
//! socket, another worker or a deadline wakes it. Before it sleeps it sets a flag and steps once more: that
//! step finds everything that another worker sent before it could see the flag, and everything sent later comes
//! with a wake-up.

mod awaited;
mod flow;
mod members;
mod options;
mod reports;
mod running;
mod signals;
mod start;
mod version;
mod waiting;
#[doc(hidden)] // For the other crates of Millstream.
pub mod watch;
mod wire;
mod worker;

pub use awaited::Ending;
pub use options::{OnMetrics, Options, WORKERS_MAX};
pub use running::Running;
