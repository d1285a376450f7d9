//! The clocks of this machine, for all crates: the only place that reads them.
//!
//! ```
//! use millstream_journal::clock::{monotonic_ns, wall_ns};
//! let start = monotonic_ns();
//! assert!(monotonic_ns() >= start && wall_ns() > 0);
//! ```

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: since an arbitrary start, the same for all processes of this machine, and never set back.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// The time of day, in nanoseconds since 1970. It jumps when the machine's clock is set.
#[inline]
#[must_use]
pub fn wall_ns() -> u64 {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}
