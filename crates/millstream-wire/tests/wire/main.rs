//! The wire crate from outside: what goes in comes out, whatever is broken says where, and nothing panics.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod adapting;
mod any_bytes;
mod errors;
mod interfaces;
mod random;
mod round_trips;
