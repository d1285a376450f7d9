//! The time, as the caller read it. The core of this crate reads no clock.

/// A point in time on two clocks, read once for a batch of work.
///
/// Dates (expiry, delay, age) follow the wall clock. Durations (waits, open timeouts, idle queues) follow the steady
/// clock, so that a change of the wall clock ends no wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Moment {
    /// Milliseconds since 1970-01-01 UTC.
    pub wall_ms: u64,
    /// Microseconds of a clock that never steps back, with an arbitrary origin.
    pub steady_us: u64,
}

impl Moment {
    /// The steady time at which the wall clock shows `wall_ms`; now if that is past.
    pub(crate) fn steady_at(self, wall_ms: u64) -> u64 {
        let ahead_us = wall_ms.saturating_sub(self.wall_ms).saturating_mul(1_000);
        self.steady_us.saturating_add(ahead_us)
    }
}
