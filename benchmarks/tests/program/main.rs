//! The program `millstream-bench` from outside: small runs, whose figures mean nothing, with all their processes.

#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for other processes"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod flow;
mod http;
mod journal;
mod market_spread;
mod process;
mod queue;
mod service;
