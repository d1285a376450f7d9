//! Queues from outside, without a socket: conversations of several clients, judged byte by byte.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod script;

mod ages;
mod batches;
mod compat;
mod crashes;
mod creating;
mod embedded;
mod expiry;
mod fanout;
mod faults_of_others;
mod fixtures;
mod histories;
mod imports;
mod journals;
mod limits;
mod many;
mod memory;
mod once;
mod reads;
mod redrive;
mod retries;
mod rights;
mod rounds;
mod salvage;
mod several;
mod simulation;
mod waiting;
