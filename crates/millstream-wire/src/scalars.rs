//! Two types that the standard library lacks: moments and decimal numbers.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Misfit, Result, WireError};

/// A moment: nanoseconds since 1970, UTC. In texts it is RFC 3339.
///
/// ```
/// use millstream_wire::Timestamp;
/// assert_eq!(Timestamp(1_500_000_000).to_string(), "1970-01-01T00:00:01.5Z");
/// assert_eq!("1970-01-01T01:00:01+01:00".parse(), Ok(Timestamp(1_000_000_000)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(self.0.into()) {
            Ok(moment) => write!(f, "{moment}"),
            Err(_) => Err(fmt::Error), // every i64 of nanoseconds is within jiff's range
        }
    }
}

impl FromStr for Timestamp {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let moment: jiff::Timestamp = text.parse().map_err(|error| format!("{error}"))?;
        i64::try_from(moment.as_nanosecond())
            .map(Self)
            .map_err(|_| format!("{text} is beyond the years 1678 to 2262"))
    }
}

/// A decimal number, kept as its text so that no digit is lost: `-12.50`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal<'a>(Cow<'a, str>);

impl<'a> Decimal<'a> {
    /// Takes a number of digits with at most one point, and a sign before it.
    ///
    /// # Errors
    /// The text is something else.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Result<Self> {
        let text = text.into();
        let digits = text.strip_prefix(['-', '+']).unwrap_or(&text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if number(whole) && number(fraction) {
            return Ok(Self(text));
        }
        Err(WireError::encode(Misfit::Decimal(text.into_owned())))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Decimal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number as one of 4 bytes, rounded; `None` for a finite one that these cannot hold.
///
/// ```
/// assert_eq!(millstream_wire::narrowed(0.5), Some(0.5));
/// assert_eq!(millstream_wire::narrowed(1e300), None);
/// assert_eq!(millstream_wire::narrowed(f64::INFINITY), Some(f32::INFINITY));
/// ```
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn narrowed(number: f64) -> Option<f32> {
    let narrow = number as f32;
    (narrow.is_finite() || !number.is_finite()).then_some(narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_has_a_text_and_comes_back() {
        for ns in [i64::MIN, -1, 0, 1, 1_795_000_000_123_456_789, i64::MAX] {
            assert_eq!(Timestamp(ns).to_string().parse(), Ok(Timestamp(ns)));
        }
        assert!("0001-01-01T00:00:00Z".parse::<Timestamp>().is_err());
        assert!("tomorrow".parse::<Timestamp>().is_err());
    }

    #[test]
    fn only_decimal_numbers_are_decimals() {
        for good in [
            "0",
            "-12.50",
            "+1",
            "007",
            "123456789012345678901234567890.1",
        ] {
            assert_eq!(Decimal::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-", ".5", "5.", "1e3", "1.2.3", " 1", "one", "1_000"] {
            assert!(Decimal::new(bad).is_err(), "{bad}");
        }
    }
}
