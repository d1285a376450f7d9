//! Clocks: the clock of the engine, and the clock of *processing time*.
//!
//! The engine's clock is `CLOCK_MONOTONIC`, in plain nanoseconds, because its times are compared with those of
//! other processes on the same machine: a sender's schedule, a receiver's arrival.
//!
//! Windows and timers that do not follow event time follow processing time. Its clock is passed to the run:
//! [`WallClock`], or one that a test sets ([`testing::VirtualClock`](crate::testing::VirtualClock)). If the
//! clock is set back, the processing time of a worker does not decrease.

#[doc(hidden)] // For the other crates of Millstream.
pub use millstream_journal::clock::monotonic_ns as now_ns;
use millstream_journal::clock::wall_ns;

/// A clock of processing time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time in nanoseconds since 1970.
    fn time_ns(&self) -> i64;
    /// Returns how long a worker may sleep, in real nanoseconds, before it checks again whether the clock has
    /// reached `at`.
    fn wait_ns(&self, at: i64) -> u64 {
        at.saturating_sub(self.time_ns()).max(0) as u64
    }
}

/// The time of day when the clock is created, plus the time that has passed since. Setting the machine's clock
/// does not change it.
pub struct WallClock {
    wall: i64,
    start: u64,
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock {
            wall: wall_ns() as i64,
            start: now_ns(),
        }
    }
}

impl Clock for WallClock {
    fn time_ns(&self) -> i64 {
        self.wall
            .saturating_add(now_ns().saturating_sub(self.start) as i64)
    }
}
