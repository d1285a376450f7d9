//! Millstream: durable, microsecond event processing in one install.
//!
//! This crate re-exports the others for users in Rust. Journals are always there; the rest are features, all on by default
//! but `cluster` and the last six:
//!
//! | feature | module | what it is |
//! |---|---|---|
//! | | [`journal`] | a durable, memory-mapped log |
//! | `flow` | [`flow`] | dataflows on `timely` |
//! | `compression` | [`flow`] | files compressed by gzip and zstd; its build needs a C compiler, and a run without it names this feature |
//! | `cluster` | [`cluster`] | one flow on several processes, with TLS |
//! | `queue` | [`queue`] | durable queues in process; with `flow` as its sources and sinks |
//! | `wire` | [`wire`] | typed values and method calls as records, as YAML and as JSON; `service` turns it on |
//! | `service` | [`service`] | components whose inputs and outputs are method calls in journals |
//! | `http` | [`http`] | HTTP as a source and a sink of flows, with TLS; a feed for browsers; with `service` a gateway of services |
//! | `observe` | [`observe`] | a page that shows a running flow, queues, journals or services, and their metrics for Prometheus |
//! | `otlp` | [`observe`] | its traces of epochs and of calls of services over OTLP/HTTP |
//! | `queue-server` | [`queue::server`] | the server of the queues, with TLS |
//! | `kafka` | [`kafka`] | topics of Kafka as sources and sinks of flows |
//! | `replication` | [`replication`] | live copies of journals on other machines, with TLS |
//!
//! The program `millstream` is in the crate `millstream-cli`.
//!
//! ```
//! #[derive(millstream::Wire)]
//! struct Order<'a> {
//!     symbol: &'a str,
//!     quantity: u32,
//! }
//!
//! #[millstream::interface]
//! trait Orders {
//!     fn place(&mut self, order: &Order<'_>);
//! }
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(all(feature = "flow", feature = "wire"))]
mod states;

#[cfg(feature = "cluster")]
pub use millstream_cluster as cluster;
#[cfg(feature = "flow")]
pub use millstream_flow as flow;
#[cfg(feature = "flow")]
#[doc(inline)]
pub use millstream_flow::key::Key;
#[cfg(feature = "http")]
pub use millstream_http as http;
pub use millstream_journal as journal;
#[cfg(feature = "kafka")]
pub use millstream_kafka as kafka;
#[cfg(feature = "flow")]
#[doc(inline)]
pub use millstream_macros::MillstreamKey as Key;
#[cfg(feature = "wire")]
#[doc(inline)]
pub use millstream_macros::{MillstreamWire as Wire, millstream_interface as interface};
#[cfg(feature = "observe")]
pub use millstream_observe as observe;
#[cfg(feature = "queue")]
pub use millstream_queue as queue;
#[cfg(feature = "replication")]
pub use millstream_replication as replication;
#[cfg(feature = "service")]
pub use millstream_service as service;
#[cfg(feature = "wire")]
pub use millstream_wire as wire;
#[cfg(all(feature = "flow", feature = "wire"))]
pub use states::wire_state;
