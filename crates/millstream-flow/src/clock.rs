//! The engine's one clock: nanoseconds of `CLOCK_MONOTONIC`.
//!
//! Plain numbers, because they are compared with those of other processes of the same machine:
//! a sender's schedule, a receiver's arrival.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since an arbitrary start, the same for all processes of this machine.
#[must_use]
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}
