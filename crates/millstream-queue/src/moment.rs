//! The time, as the caller read it. Nothing in this crate's core reads a clock.

/// One moment on two clocks, read together once for a batch of work.
///
/// What is promised to users in dates (expiry, delay, age) follows the wall clock; what is measured (a wait, an open
/// read, an idle queue) follows the steady one, so that a clock that is set back or forward ends no wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Milliseconds since 1970-01-01 UTC.
    pub wall_ms: u64,
    /// Microseconds of a clock that never steps back, from any beginning.
    pub steady_us: u64,
}

impl Moment {
    /// When the wall clock will show `wall_ms`, on the steady clock; now if it has already.
    pub(crate) fn steady_at(self, wall_ms: u64) -> u64 {
        let ahead_us = wall_ms.saturating_sub(self.wall_ms).saturating_mul(1_000);
        self.steady_us.saturating_add(ahead_us)
    }
}
