//! Millstream: durable, microsecond event processing in one install.
//!
//! This crate is the face of the others for users in Rust ([`flow`], [`journal`], [`queue`], [`wire`]), and the `millstream` program ([`cli`]).
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

pub use millstream_flow as flow;
pub use millstream_journal as journal;
pub use millstream_macros::{MillstreamWire as Wire, millstream_interface as interface};
pub use millstream_queue as queue;
pub use millstream_wire as wire;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "benchmarks belong to the program: their processes talk to each other over standard output"
)]
pub mod bench;
#[expect(
    clippy::print_stderr,
    reason = "the program speaks to the terminal; libraries log through tracing"
)]
pub mod cli;
pub mod generate;
pub mod market_spread;
pub mod queues;
pub mod random;
pub mod replication;
pub mod service;
