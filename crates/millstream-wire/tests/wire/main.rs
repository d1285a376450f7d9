//! The public API of the wire crate: round trips, errors with their place, and no panics.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod adapting;
mod any_bytes;
mod errors;
mod interfaces;
mod json;
mod nesting;
mod random;
mod round_trips;
