//! A flow on several processes, which are threads of the test here: each has its own `Running`, and the cluster between
//! them is a model in memory with real sockets for data.

#![expect(
    clippy::disallowed_methods,
    reason = "each process is a thread, and some of them are slow"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod commits;
mod hub;
mod tables;

mod deaths;
mod found;
mod gathered;
mod pressure;
mod results;
mod scale;
mod starts;
mod state;
mod stops;
