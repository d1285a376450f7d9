//! The current time for queues, from the clocks of the journal crate.

use millstream_journal::clock::{monotonic_ns, wall_ns};

use crate::moment::Moment;

/// The current time, on both clocks.
#[inline]
pub(crate) fn now() -> Moment {
    Moment {
        wall_ms: wall_ns() / 1_000_000,
        steady_us: steady_us(),
    }
}

/// The current time on the steady clock, in microseconds.
#[inline]
pub(crate) fn steady_us() -> u64 {
    monotonic_ns() / 1_000
}
