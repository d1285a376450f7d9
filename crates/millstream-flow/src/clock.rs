//! Clocks: the engine's own, and the one that says what *processing time* is.
//!
//! The engine's own clock is `CLOCK_MONOTONIC`, as plain nanoseconds, because they are compared with
//! those of other processes of the same machine: a sender's schedule, a receiver's arrival.
//!
//! Processing time is what windows and timers go by that do not follow the times of the items. Its
//! clock is handed in with the run: [`WallClock`], or one that a test moves by hand
//! ([`testing::VirtualClock`](crate::testing::VirtualClock)). Wherever a clock jumps to, a worker's
//! processing time never goes back.

pub use millstream_journal::clock::monotonic_ns as now_ns;
use millstream_journal::clock::wall_ns;

/// What says which processing time it is.
pub trait Clock: Send + Sync + 'static {
    /// Nanoseconds since 1970.
    fn time_ns(&self) -> i64;
    /// How many real nanoseconds a worker may sleep before it looks whether the clock shows `at`.
    fn wait_ns(&self, at: i64) -> u64 {
        at.saturating_sub(self.time_ns()).max(0) as u64
    }
}

/// The time of day when the clock was made, and from then on the time that has passed. Who sets the
/// machine's clock back or forward changes nothing.
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
