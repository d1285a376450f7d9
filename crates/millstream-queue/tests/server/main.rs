//! The server inside a program: what the program does with it, and that it leaves the rest of the process alone.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod client;

mod ends;
mod failures;
mod process;
mod runtimes;
mod starts;
