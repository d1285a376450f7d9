//! Times on the command line: moments as RFC 3339 or as how long ago, and durations.

use std::time::Duration;

use jiff::{SpanRelativeTo, Timestamp, civil, tz::TimeZone};
use millstream_journal::Host;

/// A moment in ns since 1970: `2026-11-21T16:42:40Z`, a date or a date and time in UTC, or how long ago: `10m`, `2h30m`, `7d`.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    parse_at(text, Host::real().time_ns())
}

fn parse_at(text: &str, now_ns: u64) -> Result<u64, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(u128::from(now_ns).saturating_sub(ago.as_nanos()) as u64);
    }
    let moment = text.parse::<Timestamp>().or_else(|_| {
        let civil: civil::DateTime = text.parse()?;
        Ok(civil.to_zoned(TimeZone::UTC)?.timestamp())
    });
    let moment = moment.map_err(|_: jiff::Error| {
        "a moment like 2026-11-21T16:42:40Z or 2026-11-21, or how long ago, like 10m or 7d"
            .to_owned()
    })?;
    ns(moment)
}

/// A moment as RFC 3339, in ns since 1970.
pub(super) fn parse_exact(text: &str) -> Result<u64, String> {
    let moment: Timestamp = text
        .parse()
        .map_err(|_| format!("\"{text}\" is no time like 2026-11-21T16:42:40Z"))?;
    ns(moment)
}

fn ns(moment: Timestamp) -> Result<u64, String> {
    u64::try_from(moment.as_nanosecond())
        .map_err(|_| format!("{moment} is not within the years 1970 to 2554"))
}

/// A length of time: `100ms`, `2h30m`, `7d`. A day has 24 hours.
pub(in crate::cli) fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::Span = text
        .parse()
        .map_err(|_| "a length of time like 100ms, 1s, 2h30m or 7d".to_owned())?;
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|error| error.to_string())?;
    Duration::try_from(length).map_err(|_| "a length of time is not negative".to_owned())
}

/// A moment as RFC 3339, UTC, down to the nanosecond.
pub(in crate::cli) fn show(time_ns: u64) -> String {
    match Timestamp::from_nanosecond(time_ns.into()) {
        Ok(moment) => format!("{moment:.9}"),
        // Every u64 of nanoseconds is within the range of the type.
        Err(_) => time_ns.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_many_ways() {
        let at = |text| parse_at(text, 1_000_000_000_000);
        assert_eq!(at("10m"), Ok(400_000_000_000));
        assert_eq!(at("7d"), Ok(0), "not before 1970");
        assert_eq!(at("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert_eq!(at("1970-01-01T01:00:01.5+01:00"), Ok(1_500_000_000));
        assert_eq!(at("1970-01-02"), Ok(86_400_000_000_000));
        assert_eq!(at("1970-01-01 00:00:02"), Ok(2_000_000_000));
        for wrong in ["", "tomorrow", "1969-01-01", "12", "-1m"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_is_parsed_back() {
        for time_ns in [0, 1, 1_795_278_160_123_456_789, u64::MAX] {
            assert_eq!(parse_exact(&show(time_ns)), Ok(time_ns));
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("1w 1d"), Ok(Duration::from_secs(8 * 86_400)));
        assert!(parse_duration("5").is_err() && parse_duration("-5s").is_err());
    }
}
