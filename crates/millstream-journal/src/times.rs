//! Times as text, such as `100ms` or `1m 30s`: numbers with units, the larger unit first.
//!
//! Invariant: what [`text_of`] writes, [`parse`] reads as the same time.
//!
//! ```
//! use std::time::Duration;
//! use millstream_journal::times::{parse, text_of};
//! assert_eq!(parse("1.5s"), Some(Duration::from_millis(1500)));
//! assert_eq!(text_of(Duration::from_millis(1500)), "1s 500ms");
//! ```

use std::time::Duration;

/// The units with their nanoseconds, the largest first. The first name of each is the one that is written.
const UNITS: [(u64, &[&str]); 6] = [
    (3_600_000_000_000, &["h", "hr", "hrs", "hour", "hours"]),
    (60_000_000_000, &["m", "min", "mins", "minute", "minutes"]),
    (1_000_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (
        1_000_000,
        &[
            "ms",
            "msec",
            "msecs",
            "milli",
            "millis",
            "millisecond",
            "milliseconds",
        ],
    ),
    (
        1_000,
        &[
            "µs",
            "us",
            "µsec",
            "µsecs",
            "usec",
            "usecs",
            "micro",
            "micros",
            "microsecond",
            "microseconds",
        ],
    ),
    (
        1,
        &[
            "ns",
            "nsec",
            "nsecs",
            "nano",
            "nanos",
            "nanosecond",
            "nanoseconds",
        ],
    ),
];

/// Returns the time that `text` names; `None` if it names none. Each number may have a fraction: `1.5s`.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut larger = u64::MAX;
    let mut total_ns = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = split_at(rest, |c| !c.is_ascii_digit() && c != '.');
        let unit = split_at(number.1.trim_start(), |c| !c.is_alphabetic());
        let (unit_ns, _) = *UNITS.iter().find(|(_, names)| names.contains(&unit.0))?;
        if unit_ns >= larger {
            return None;
        }
        larger = unit_ns;
        total_ns = total_ns.checked_add(nanoseconds(number.0, unit_ns)?)?;
        rest = unit.1.trim_start();
    }
    Some(Duration::from_nanos(total_ns))
}

/// Returns a time as [`parse`] reads it.
#[must_use]
pub fn text_of(time: Duration) -> String {
    let mut rest = time.as_nanos();
    let mut parts = Vec::new();
    for (unit_ns, names) in UNITS {
        let count = rest / u128::from(unit_ns);
        rest %= u128::from(unit_ns);
        if count > 0 {
            parts.push(format!("{count}{}", names[0]));
        }
    }
    if parts.is_empty() {
        "0s".to_owned()
    } else {
        parts.join(" ")
    }
}

/// Divides `text` before the first character that ends its first part.
fn split_at(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Returns a decimal number of units in nanoseconds; what is less than one is dropped.
fn nanoseconds(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    let digits: u64 = fraction.parse().ok()?;
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(digits) * u128::from(unit_ns) / scale;
    whole
        .checked_mul(unit_ns)?
        .checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_the_larger_unit_is_first() {
        for (text, ns) in [
            ("100ms", 100_000_000),
            ("1.5s", 1_500_000_000),
            ("1m 30s", 90_000_000_000),
            ("1m30s", 90_000_000_000),
            ("2 minutes", 120_000_000_000),
            ("100 milliseconds", 100_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("1h 1ns", 3_600_000_000_001),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            " ",
            "100",
            "s",
            "1 fortnight",
            "-1s",
            "1s 1m",
            "1s 1s",
            "1..5s",
            ".5s",
            "1.s",
            "1s,",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&format!("{}h", u64::MAX)), None);
        assert_eq!(parse(&format!("0.{}s", "1".repeat(40))), None);
    }

    #[test]
    fn text_is_read_as_the_same_time() {
        for (ns, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500_000_000, "1s 500ms"),
            (5_400_000_000_000, "1h 30m"),
            (u64::MAX, "5124095h 34m 33s 709ms 551µs 615ns"),
        ] {
            let time = Duration::from_nanos(ns);
            assert_eq!((text_of(time).as_str(), parse(text)), (text, Some(time)));
        }
    }
}
