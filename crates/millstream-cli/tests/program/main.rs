//! The `millstream` program from outside: real processes, files and sockets, one module for each
//! behaviour.

#![expect(
    clippy::disallowed_methods,
    reason = "a test waits for other processes"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod process;

mod followers;
mod journal;
mod journal_calls;
mod journal_failures;
mod journal_salvage;
mod journal_transfer;
mod journal_two_processes;
mod leader;
mod promotion;
mod replication;
mod replication_kills;
mod replication_sets;
mod send_receive;
mod send_receive_failures;
mod state;
