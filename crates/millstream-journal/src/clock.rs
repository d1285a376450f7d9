//! The clocks of this machine, for all crates: the only place that reads them.
//!
//! ```
//! use millstream_journal::clock::{monotonic_ns, wall_ns};
//! let start = monotonic_ns();
//! assert!(monotonic_ns() >= start && wall_ns() > 0);
//! ```

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: since an arbitrary start, the same for all processes of this machine, and never
/// set back.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of `CLOCK_BOOTTIME`: as [`monotonic_ns`], but it also goes on while the machine is suspended.
#[inline]
#[must_use]
pub fn boot_ns() -> u64 {
    read(ClockId::Boottime)
}

/// The time of day, in nanoseconds since 1970. It jumps when the machine's clock is set. One that is set before 1970
/// reads as 1970, one after 2554 as the last moment of it that has a number.
#[inline]
#[must_use]
pub fn wall_ns() -> u64 {
    read(ClockId::Realtime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    nanoseconds(time.tv_sec, time.tv_nsec)
}

#[inline]
fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    match u64::try_from(seconds) {
        Ok(seconds) => seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds as u64),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_number_is_the_nearest_that_has_one() {
        assert_eq!(nanoseconds(3, 5), 3_000_000_005);
        assert_eq!(nanoseconds(0, 0), 0);
        assert_eq!(nanoseconds(-1, 999_999_999), 0);
        assert_eq!(nanoseconds(i64::MIN, 0), 0);
        assert_eq!(nanoseconds(18_446_744_074, 0), u64::MAX);
        assert_eq!(nanoseconds(i64::MAX, 999_999_999), u64::MAX);
    }
}
