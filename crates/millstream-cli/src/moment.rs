//! Times on the command line: moments in absolute terms or as people say them, and durations.
//!
//! | text | means |
//! |---|---|
//! | `2026-11-21T16:42:40Z`, with any offset | that moment |
//! | `2026-11-21`, `2026-11-21 16:42` | UTC, as records are shown |
//! | `10m`, `2h30m`, `7d`, `2 hours ago` | so long ago; a day has 24 hours |
//! | `1 month ago`, `1y 2mo ago` | the same time of day so long ago by the calendar |
//! | `now`, `today`, `yesterday` | now; midnight |
//! | `monday`, `mon` | midnight of the last day of that name, today included |
//! | `last monday` | the same, today not included |
//! | `yesterday 14:00`, `monday 9:30` | that time of that day |
//!
//! Words and the calendar go by the time zone of the system (`TZ`). [`Moment::explain`] prints the moment on standard
//! error.

use std::time::Duration;

use jiff::civil::{DateTime, Time, Weekday};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp, Zoned};
use millstream_journal::Host;

/// A moment given on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    /// In ns since 1970.
    pub(crate) time_ns: u64,
    /// The moment that the text was resolved to, unless it was a moment already.
    understood: Option<Zoned>,
}

impl Moment {
    /// Prints on standard error the moment that the text of this option was resolved to.
    pub(crate) fn explain(&self, option: &str) {
        if let Some(understood) = &self.understood {
            eprintln!("{option} {understood}");
        }
    }
}

/// The moment that a text means now, on this machine.
pub(crate) fn parse(text: &str) -> Result<Moment, String> {
    let now = Timestamp::from_nanosecond(Host::real().time_ns().into());
    let now = now.map_err(|error| error.to_string())?;
    parse_at(text, &now.to_zoned(TimeZone::system()))
}

fn parse_at(text: &str, now: &Zoned) -> Result<Moment, String> {
    let text = text.trim().to_lowercase();
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(Moment {
            time_ns: ns(moment)?,
            understood: None,
        });
    }
    let utc = text
        .parse::<DateTime>()
        .and_then(|date| date.to_zoned(TimeZone::UTC));
    let understood = utc
        .ok()
        .or_else(|| ago(&text, now))
        .or_else(|| day(&text, now))
        .ok_or("a moment like 2026-11-21T16:42:40Z, 2026-11-21, \"2 hours ago\", 7d, yesterday, \"monday 14:00\"")?;
    Ok(Moment {
        time_ns: ns(understood.timestamp())?,
        understood: Some(understood),
    })
}

/// `2 hours ago`, `an hour ago`, `10m`.
fn ago(text: &str, now: &Zoned) -> Option<Zoned> {
    let unit = text.strip_prefix("an ").or_else(|| text.strip_prefix("a "));
    let counted = unit.map(|unit| format!("1 {unit}"));
    let span: Span = counted.as_deref().unwrap_or(text).parse().ok()?;
    let span = if text.ends_with("ago") { -span } else { span };
    // Months and years have no length of their own.
    let before = match span.to_duration(SpanRelativeTo::days_are_24_hours()) {
        Ok(length) => now.checked_sub(length),
        Err(_) => now.checked_sub(span),
    };
    before.ok().filter(|_| !span.is_negative())
}

/// `yesterday`, `monday`, `last mon`, each with a time of day or without; `now`.
fn day(text: &str, now: &Zoned) -> Option<Zoned> {
    let last = text.strip_prefix("last ");
    let (name, time) = last
        .unwrap_or(text)
        .split_once(' ')
        .map_or((last.unwrap_or(text), None), |(name, time)| {
            (name, Some(time))
        });
    let date = match (name, last) {
        ("now", None) => return time.is_none().then(|| now.clone()),
        ("today", None) => now.date(),
        ("yesterday", None) => now.date().yesterday().ok()?,
        (name, None) => now
            .date()
            .tomorrow()
            .ok()?
            .nth_weekday(-1, weekday(name)?)
            .ok()?,
        (name, Some(_)) => now.date().nth_weekday(-1, weekday(name)?).ok()?,
    };
    let time = time.map_or(Some(Time::midnight()), time_of_day)?;
    date.to_datetime(time)
        .to_zoned(now.time_zone().clone())
        .ok()
}

/// `14:00`, `9:30:05`.
fn time_of_day(text: &str) -> Option<Time> {
    let parse = |format| Time::strptime(format, text).ok();
    ["%H:%M", "%H:%M:%S"].into_iter().find_map(parse)
}

/// `monday`, `mon`.
fn weekday(name: &str) -> Option<Weekday> {
    let parse = |format| BrokenDownTime::parse(format, name).ok()?.weekday();
    ["%A", "%a"].into_iter().find_map(parse)
}

/// A moment as RFC 3339, in ns since 1970.
pub(crate) fn parse_exact(text: &str) -> Result<u64, String> {
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
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: Span = text
        .parse()
        .map_err(|_| "a length of time like 100ms, 1s, 2h30m or 7d".to_owned())?;
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|error| error.to_string())?;
    Duration::try_from(length).map_err(|_| "a length of time is not negative".to_owned())
}

/// A moment as RFC 3339, UTC, down to the nanosecond.
pub(crate) fn show(time_ns: impl Into<i128>) -> String {
    let time_ns = time_ns.into();
    match Timestamp::from_nanosecond(time_ns) {
        Ok(moment) => format!("{moment:.9}"),
        // Every u64 and i64 of nanoseconds is within the range of the type.
        Err(_) => time_ns.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Wednesday.
    fn now(zone: &str) -> Zoned {
        let zone = match zone {
            "UTC" => TimeZone::UTC,
            posix => TimeZone::posix(posix).expect("it is a zone"),
        };
        let moment: Timestamp = "2026-11-25T15:30:20.5Z".parse().expect("it is a moment");
        moment.to_zoned(zone)
    }

    fn at(text: &str, zone: &str) -> Result<String, String> {
        parse_at(text, &now(zone)).map(|moment| show(moment.time_ns).replace(".000000000", ""))
    }

    #[test]
    fn absolute_moments_are_in_utc_unless_they_say_otherwise() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", "1970-01-01T00:00:01Z"),
            ("1970-01-01T01:00:01+01:00", "1970-01-01T00:00:01Z"),
            ("1970-01-02", "1970-01-02T00:00:00Z"),
            ("1970-01-01 00:00:02", "1970-01-01T00:00:02Z"),
        ] {
            assert_eq!(at(text, "EST5"), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_ago() {
        for (text, expected) in [
            ("10m", "2026-11-25T15:20:20.500000000Z"),
            ("2h30m", "2026-11-25T13:00:20.500000000Z"),
            ("2 hours ago", "2026-11-25T13:30:20.500000000Z"),
            ("2 Hours Ago", "2026-11-25T13:30:20.500000000Z"),
            ("an hour ago", "2026-11-25T14:30:20.500000000Z"),
            ("7d", "2026-11-18T15:30:20.500000000Z"),
            ("1 week 1 day ago", "2026-11-17T15:30:20.500000000Z"),
            ("1 month ago", "2026-10-25T15:30:20.500000000Z"),
        ] {
            assert_eq!(at(text, "UTC"), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        for (text, zone, expected) in [
            ("today", "UTC", "2026-11-25T00:00:00Z"),
            ("yesterday", "UTC", "2026-11-24T00:00:00Z"),
            ("Yesterday", "CET-1", "2026-11-23T23:00:00Z"),
            // It is tomorrow already there.
            ("yesterday 14:00", "<+12>-12", "2026-11-25T02:00:00Z"),
            ("wednesday", "UTC", "2026-11-25T00:00:00Z"),
            ("last wednesday", "UTC", "2026-11-18T00:00:00Z"),
            ("wednesday", "<+12>-12", "2026-11-24T12:00:00Z"),
            ("thu", "UTC", "2026-11-19T00:00:00Z"),
            ("last thursday", "UTC", "2026-11-19T00:00:00Z"),
            ("monday 9:30", "CET-1", "2026-11-23T08:30:00Z"),
            ("Last Sunday 09:30:05", "UTC", "2026-11-22T09:30:05Z"),
            ("now", "CET-1", "2026-11-25T15:30:20.500000000Z"),
        ] {
            assert_eq!(at(text, zone), Ok(expected.to_owned()), "{text} in {zone}");
        }
    }

    #[test]
    fn impossible_moments_are_refused() {
        for wrong in [
            "",
            "tomorrow",
            "1969-01-01",
            "60000d",
            "12",
            "-1m",
            "-2 hours ago",
            "ago",
            "last",
            "last today",
            "mond",
            "monday noon",
            "yesterday 14",
            "yesterday 25:00",
            "now 12:00",
            "monday 1:00 2:00",
        ] {
            assert!(at(wrong, "UTC").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_that_was_understood_is_shown_with_its_zone() {
        let understood = |text| parse_at(text, &now("EST5")).map(|moment| moment.understood);
        let said = |text| {
            understood(text)
                .expect("it is a moment")
                .expect("it is said")
                .to_string()
        };
        assert!(said("yesterday").starts_with("2026-11-24T00:00:00-05:00["));
        assert!(said("10m").starts_with("2026-11-25T10:20:20.5-05:00["));
        assert_eq!(said("2026-11-21"), "2026-11-21T00:00:00+00:00[UTC]");
        assert_eq!(
            understood("2026-11-21T00:00:00Z").expect("it is a moment"),
            None
        );
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
