//! Millstream: durable, microsecond event processing for Rust in one crate, without a broker or a cluster to operate.
//!
//! - A *flow* ([`flow`]) takes events from sources through steps to sinks: state for each key, windows, joins, exact
//!   after a crash.
//! - A *journal* ([`journal`]) is a durable log in mapped files, which any process of the machine appends to and tails.
//! - A *queue* ([`queue`]) is durable, in process or served to any memcache client.
//! - A *service* ([`service`]) is a component whose inputs and outputs are method calls in journals, replayable.
//!
//! ```
//! # #[cfg(feature = "flow")] {
//! use millstream::prelude::*;
//!
//! let (flow, out) = (Flow::new("warmest"), testing::Collected::new());
//! flow.source("readings", testing::items([("oslo", 3), ("rome", 14), ("oslo", 5)]))
//!     .into_keyed()
//!     .max(Emit::End)
//!     .items()
//!     .sink("warmest", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("oslo", 5), ("rome", 14)]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! The [guide](https://github.com/millstream/millstream/blob/main/docs/guide/flows.md) has a program in Rust for each
//! of its parts, and the
//! [examples](https://github.com/millstream/millstream/tree/main/examples) are whole programs. The program `millstream` is in the crate `millstream-cli`.
//!
//! # Features
//!
//! Journals are always there; the rest are features:
//!
//! | feature | default | module | what it is |
//! |---|---|---|---|
//! | | | [`journal`] | a durable, memory-mapped log |
//! | `flow` | yes | [`flow`] | dataflows on `timely`; the [`prelude`] |
//! | `queue` | yes | [`queue`] | durable queues in process; with `flow` as its sources and sinks |
//! | `service` | yes | [`service`] | components whose inputs and outputs are method calls in journals |
//! | `wire` | yes | [`wire`] | typed values and method calls as records, as YAML and as JSON; `service` turns it on |
//! | `compression` | yes | [`flow`] | files compressed by gzip and zstd; its build needs a C compiler, and a run without it names this feature |
//! | `cluster` | no | [`cluster`] | one flow on several processes, with TLS |
//! | `http` | no | [`http`] | HTTP as a source and a sink of flows, with TLS; a feed for browsers; with `service` a gateway of services |
//! | `kafka` | no | [`kafka`] | topics of Kafka as sources and sinks of flows; a build needs a C compiler, `make` and the headers of OpenSSL |
//! | `kafka-vendored` | no | [`kafka`] | the same, and OpenSSL is compiled too |
//! | `observe` | no | [`observe`] | a page that shows a running flow, queues, journals or services, and their metrics for Prometheus |
//! | `otlp` | no | [`observe`] | its traces of epochs and of calls of services over OTLP/HTTP |
//! | `queue-server` | no | [`queue`] | the server of the queues, with TLS, in its module `server` |
//! | `replication` | no | [`replication`] | live copies of journals on other machines, with TLS |
//!
//! ```sh
//! cargo add millstream --features cluster,http
//! cargo add serde --features derive   # types of your own in a state directory: serde 1
//! cargo add tokio --features rt,sync  # flows in an asynchronous program: tokio 1
//! ```
//!
//! # Interfaces
//!
//! Arguments of services are types with `#[derive(millstream::Wire)]`, and their interfaces are traits:
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
//!
#![cfg_attr(
    not(feature = "cluster"),
    doc = "[`cluster`]: https://docs.rs/millstream/latest/millstream/cluster/"
)]
#![cfg_attr(
    not(feature = "flow"),
    doc = "[`flow`]: https://docs.rs/millstream/latest/millstream/flow/"
)]
#![cfg_attr(
    not(feature = "http"),
    doc = "[`http`]: https://docs.rs/millstream/latest/millstream/http/"
)]
#![cfg_attr(
    not(feature = "kafka"),
    doc = "[`kafka`]: https://docs.rs/millstream/latest/millstream/kafka/"
)]
#![cfg_attr(
    not(feature = "observe"),
    doc = "[`observe`]: https://docs.rs/millstream/latest/millstream/observe/"
)]
#![cfg_attr(
    not(feature = "flow"),
    doc = "[`prelude`]: https://docs.rs/millstream/latest/millstream/prelude/"
)]
#![cfg_attr(
    not(feature = "queue"),
    doc = "[`queue`]: https://docs.rs/millstream/latest/millstream/queue/"
)]
#![cfg_attr(
    not(feature = "replication"),
    doc = "[`replication`]: https://docs.rs/millstream/latest/millstream/replication/"
)]
#![cfg_attr(
    not(feature = "service"),
    doc = "[`service`]: https://docs.rs/millstream/latest/millstream/service/"
)]
#![cfg_attr(
    not(feature = "wire"),
    doc = "[`wire`]: https://docs.rs/millstream/latest/millstream/wire/"
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "flow")]
pub mod prelude;
#[cfg(all(feature = "flow", feature = "wire"))]
mod states;

#[cfg(feature = "cluster")]
#[doc(inline)]
pub use millstream_cluster as cluster;
#[cfg(feature = "flow")]
#[doc(inline)]
pub use millstream_flow as flow;
#[cfg(feature = "flow")]
#[doc(inline)]
pub use millstream_flow::key::Key;
#[cfg(feature = "http")]
#[doc(inline)]
pub use millstream_http as http;
#[doc(inline)]
pub use millstream_journal as journal;
#[cfg(feature = "kafka")]
#[doc(inline)]
pub use millstream_kafka as kafka;
#[cfg(feature = "flow")]
#[doc(inline)]
pub use millstream_macros::MillstreamKey as Key;
#[cfg(feature = "wire")]
#[doc(inline)]
pub use millstream_macros::{MillstreamWire as Wire, millstream_interface as interface};
#[cfg(feature = "observe")]
#[doc(inline)]
pub use millstream_observe as observe;
#[cfg(feature = "queue")]
#[doc(inline)]
pub use millstream_queue as queue;
#[cfg(feature = "replication")]
#[doc(inline)]
pub use millstream_replication as replication;
#[cfg(feature = "service")]
#[doc(inline)]
pub use millstream_service as service;
#[cfg(feature = "wire")]
#[doc(inline)]
pub use millstream_wire as wire;
#[cfg(all(feature = "flow", feature = "wire"))]
pub use states::wire_state;
