//! The expiry of a `set`.

use crate::moment::Moment;

/// Numbers up to this one are relative: memcached's bound of 30 days, which includes Kestrel's of 1,000,000.
const RELATIVE_MAX_S: i64 = 2_592_000;

/// The time at which an item with this expiry expires, on the wall clock in milliseconds; 0 never.
#[inline]
pub(super) fn expiry_ms(expiry: i64, now: Moment) -> u64 {
    match expiry {
        0 => 0,
        ..0 => now.wall_ms.max(1),
        1..=RELATIVE_MAX_S => now.wall_ms.saturating_add(expiry as u64 * 1_000),
        _ => (expiry as u64).saturating_mul(1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_relative_and_large_ones_absolute() {
        let now = Moment {
            wall_ms: 1_700_000_000_500,
            steady_us: 0,
        };
        for (expiry, expected) in [
            (0, 0),
            (1, 1_700_000_001_500),
            (999_999, 1_700_000_000_500 + 999_999_000),
            (1_000_000, 1_700_000_000_500 + 1_000_000_000),
            (2_592_000, 1_700_000_000_500 + 2_592_000_000),
            (2_592_001, 2_592_001_000),
            (1_800_000_000, 1_800_000_000_000),
            (-1, 1_700_000_000_500),
            (i64::MIN, 1_700_000_000_500),
            (i64::MAX, u64::MAX),
        ] {
            assert_eq!(expiry_ms(expiry, now), expected, "{expiry}");
        }
    }
}
