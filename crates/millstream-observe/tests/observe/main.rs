//! The integration tests of the crate.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod flows;
mod generated;
mod queues;
mod server;
mod systems;
