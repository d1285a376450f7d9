//! Services: components whose inputs and outputs are method calls, every one recorded and replayable.
//!
//! A component is a plain struct. It implements the traits through which it is called, and calls the traits of its
//! outputs. A [`Service`] reads the calls from journals and records the calls that the component makes in another
//! journal, each with its *lineage*: the input that it is an effect of.
//!
//! - Each input has its effect once. After a crash, the lineage of the last output holds the position of the component.
//!   Its state is rebuilt by calling it again with all inputs up to there, while its outputs are compared with the
//!   recorded ones. A [`Snapshot`] shortens that; some components can be rebuilt from their outputs
//!   ([`Setup::rebuild_from`]).
//! - The component sees the recorded time only ([`Clock`]), so that the same inputs yield the same outputs in every
//!   run.
//! - Several inputs, and periodic calls, are taken in an order that is recorded in a journal of its own, the
//!   *schedule*.
//!
//! ```
//! use millstream_journal::{Journal, Options};
//! use millstream_service::{Service, Settings, publisher};
//! use millstream_wire::Cause;
//!
//! #[millstream_wire::interface]
//! trait Orders {
//!     fn place(&mut self, symbol: &str, quantity: u32);
//! }
//!
//! #[millstream_wire::interface]
//! trait Replies {
//!     fn accepted(&mut self, symbol: &str, total: u64);
//! }
//!
//! struct Desk<R> {
//!     replies: R,
//!     total: u64,
//! }
//!
//! impl<R: Replies> Orders for Desk<R> {
//!     fn place(&mut self, symbol: &str, quantity: u32) {
//!         self.total += u64::from(quantity);
//!         self.replies.accepted(symbol, self.total);
//!     }
//! }
//!
//! # fn main() -> Result<(), Cause> {
//! # let folder = tempfile::tempdir()?;
//! let orders = Journal::open(folder.path().join("orders"), Options::default())?;
//! let replies = Journal::open(folder.path().join("replies"), Options::default())?;
//! publisher::<dyn Orders>(&orders)?.place("VOD.L", 100);
//!
//! let service = Service::new(&replies)?;
//! let desk = Desk { replies: service.publisher::<dyn Replies>()?, total: 0 };
//! let mut runner = service.component(desk).input::<dyn Orders>(&orders)?.start(Settings::default())?;
//! runner.drain()?; // until all inputs have been taken; `run` continues until it is stopped
//! # Ok(())
//! # }
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod error;
mod inputs;
/// JSON, for [queries](Setup::query).
pub mod json {
    pub use serde_json::{Value, json};
}
mod outputs;
mod panics;
mod queries;
mod recorded;
mod reports;
mod runner;
mod settings;
pub mod system;
pub mod testing;
mod timers;

pub use error::ServiceError;
pub use inputs::calls::{Calls, Content};
pub use inputs::inlet::Outcome;
pub use millstream_replication::Followers;
pub use outputs::current::{Clock, Timers};
pub use outputs::keys::{Key, Keys, Once};
pub use outputs::outlet::{Outlet, publisher};
pub use queries::{Arguments, Fault, QueryError, ask};
pub use recorded::snapshot::{RestoreError, Snapshot};
pub use reports::answers::{Answered, Caller, Effect, Effects};
pub use reports::history::{Hop, history};
pub use reports::latency::{CallTimes, HopLatency, Latencies, call_times, latency};
pub use runner::{LongCall, Meter, Reading, Runner, Service, Setup};
pub use settings::{OnDifference, OnError, Report, Settings, Stop};
pub use timers::{Missed, When};
