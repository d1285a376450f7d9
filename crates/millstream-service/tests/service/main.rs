//! Services on real journals: what is recorded, what happens after a crash and at bad input.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod desk;
mod durable;
mod identity;
mod latency;
mod lost_records;
mod programs;
mod queries;
mod restarts;
mod running;
mod schedules;
mod snapshots;
mod timers;
mod trials;
mod upgrades;
mod yaml;
