//! Millstream: durable, microsecond event processing in one install.
//!
//! This crate is the face of the others for users in Rust ([`flow`]), and the `millstream` program ([`cli`]).

pub use millstream_flow as flow;

pub mod bench;
pub mod cli;
pub mod generate;
pub mod market_spread;
pub mod random;
