//! Kafka as a source and a sink of flows.
//!
//! [`read`] reads topics: each partition of a topic is a partition of the source, and its offset is part of the flow's
//! state. There is no consumer group and no rebalance. [`write`](write()) writes messages: with a state directory each
//! of them once, by transactions that are fed from an [outbox](millstream_flow::outbox).
//!
//! The client is librdkafka, by the crate `rdkafka`. Only the module `client` knows it.
//!
//! ```no_run
//! use millstream_flow::{Flow, Options, Recovery};
//! use millstream_kafka::{End, Outgoing};
//!
//! let orders = millstream_kafka::read("localhost:9092", ["orders"]).end(End::Latest);
//! let flow = Flow::new("copy");
//! flow.source("orders", orders.messages())
//!     .map(|order: millstream_kafka::Message| Outgoing {
//!         key: order.key,
//!         value: order.value,
//!         ..Outgoing::default()
//!     })
//!     .sink("copies", millstream_kafka::write("localhost:9092", "copies").messages());
//! let mut options = Options::default();
//! options.recovery = Some(Recovery::new("state"));
//! flow.run(options)?;
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod client;
mod error;
mod message;
mod sink;
mod source;

pub use client::settings::Settings;
pub use client::tokens::Token;
pub use error::Error;
pub use message::{Headers, Message, Outgoing, View, value};
pub use sink::{WriteKafka, write};
pub use source::{End, ReadKafka, Start, read};
