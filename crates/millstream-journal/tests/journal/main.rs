//! Journals from outside: real directories, threads and processes, one module for each behaviour.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

mod append;
mod copies;
mod cursors;
mod cuts;
mod damage;
mod faults;
mod fixtures;
mod kills;
mod kills_under_load;
mod making;
mod memory;
mod openings;
mod pinned;
mod power_loss;
mod processes;
mod retention;
mod rolls;
mod terms;
mod trial;
