//! Journals from outside: real directories, threads and processes, one module for each behaviour.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod growing;
mod support;

mod admission;
mod append;
mod batches;
mod bits;
mod bookmarks;
mod clocks;
mod copies;
mod cursors;
mod cuts;
mod damage;
mod faults;
mod fixtures;
mod forks;
mod kills;
mod kills_under_load;
mod late_syncs;
mod left_locks;
mod making;
mod many;
mod memory;
mod missing;
mod openings;
mod owners;
mod pinned;
mod power_loss;
mod processes;
mod removed;
mod retention;
mod rolls;
mod salvage;
mod terms;
mod trial;
mod truncated;
mod waking;
