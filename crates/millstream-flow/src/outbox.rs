//! Sinks to external systems: a journal in the state directory, and a thread that delivers its records.
//!
//! A flow with a state directory appends the output of such a sink to the journal `STATE/outputs/NAME`, the *outbox*,
//! exactly once: it is truncated to the last commit when the flow resumes. The *forwarder*, a thread of the run, reads
//! committed records only and delivers them in batches to the *destination*. A destination that remembers its position
//! receives each record exactly once; any other receives it at least once, with the same number each time.
//!
//! Invariant: a record is delivered only after its epoch is committed, and pruned only after it is acknowledged. Its
//! number is its sequence number in the journal: numbers have no gaps, and a number never changes.
//!
//! An outage of the destination does not stop the flow. While the outbox holds more than its limit, sources pause;
//! epochs, signals and metrics continue.
//!
//! A run without a state directory has no journal: each flush waits until its records are delivered, at least once.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use millstream_flow::outbox::{DeliveryError, Destination, Outbox, OutboxIdentity, connector};
//! use millstream_flow::{Flow, Frames, Options, Recovery, codec, testing};
//!
//! /// A table with the number of each row. It writes a batch on the condition that it has the row before.
//! struct Table(Arc<Mutex<Vec<(u64, Vec<u8>)>>>);
//!
//! impl Destination for Table {
//!     fn write(&mut self, batch: &Frames, first: u64, _: u64) -> Result<(), DeliveryError> {
//!         if self.position()? != first.checked_sub(1) {
//!             return Err(DeliveryError::fatal("another copy of the state directory delivers"));
//!         }
//!         let rows = (first..).zip(batch.iter().map(<[u8]>::to_vec));
//!         self.0.lock().unwrap().extend(rows);
//!         Ok(())
//!     }
//!     fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
//!         Ok(self.0.lock().unwrap().last().map(|row| row.0))
//!     }
//! }
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let state = folder.path().join("state");
//! let rows = Arc::new(Mutex::new(Vec::new()));
//! let table = Arc::clone(&rows);
//! let table = connector("a table", true, move |_: &OutboxIdentity| Ok(Table(Arc::clone(&table))));
//! let flow = Flow::new("words");
//! flow.source("words", testing::items(["to", "be"]))
//!     .sink("out", codec::encode(Outbox::new(table), codec::display));
//! let mut options = Options::default();
//! options.recovery = Some(Recovery::new(&state));
//! flow.run(options)?;
//! assert_eq!(*rows.lock().unwrap(), [(0, b"to".to_vec()), (1, b"be".to_vec())]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

mod backoff;
mod destination;
mod direct;
mod forwarder;
mod link;
mod progress;
mod refusals;
mod refused;
mod settings;
mod sink;

pub use backoff::Backoff;
pub use destination::{
    Connector, DeliveryError, Destination, OutboxIdentity, connector, too_large,
};
pub(crate) use forwarder::undelivered;
pub use refusals::Refusals;
pub(crate) use refused::SUFFIX as REFUSED_SUFFIX;
pub use settings::outbox_dir;
pub use sink::Outbox;
