//! When a recurring timer is called.

use std::time::Duration;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::length_ns;
use crate::error::ServiceError;

/// The shortest day has more than this many ns.
const DAY_NS: i64 = 86_400_000_000_000;

/// What happens to the occurrences of a timer that are missed: those at which the service does not run, or is so busy
/// that a later one has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// The timer is called once for all of them, with the time of the first.
    #[default]
    Once,
    /// The timer is not called for them.
    Skip,
    /// The timer is called for each, with its time.
    All,
}

/// When a timer is called: at an interval, or at a time of the day.
///
/// ```
/// use std::time::Duration;
/// use millstream_service::{Missed, When};
///
/// let minutes = When::every(Duration::from_secs(60)).missed(Missed::Skip);
/// let evening = When::daily("18:00", "UTC")?;
/// # Ok::<(), millstream_service::ServiceError>(())
/// ```
#[derive(Debug, Clone)]
pub struct When {
    rule: Rule,
    missed: Missed,
}

#[derive(Debug, Clone)]
enum Rule {
    /// The multiples of so many ns since 1970.
    Interval(i64),
    /// A time of the day in a zone.
    Daily(Time, TimeZone),
}

impl When {
    /// At the multiples of `period` since 1970. When the clock of the machine is set, the interval goes on undisturbed.
    #[must_use]
    pub fn every(period: Duration) -> Self {
        Self {
            rule: Rule::Interval(length_ns(period)),
            missed: Missed::default(),
        }
    }

    /// Each day at `time`, such as `18:00` or `18:00:30`, in the time zone `zone`, such as `Europe/Berlin` or `UTC`. A
    /// time that a change of the clocks leaves out is called as much later; one that it repeats is called at the first.
    ///
    /// # Errors
    /// [`ServiceError::Time`]: `time` is no time, or the machine does not know the zone.
    pub fn daily(time: &str, zone: &str) -> Result<Self, ServiceError> {
        let is_time = time.len() >= 5 && time.is_char_boundary(5) && time.as_bytes()[2] == b':';
        let time_of_day: Time =
            { time.parse().ok() }
                .filter(|_| is_time)
                .ok_or_else(|| ServiceError::Time {
                    text: time.to_owned(),
                    reason: "it is no time of the day like 18:00 or 18:00:30".to_owned(),
                })?;
        let zone = zone_named(zone).ok_or_else(|| ServiceError::Time {
            text: zone.to_owned(),
            reason: "this machine knows no such time zone; it is a name like Europe/Berlin or UTC, and the zones are in \
                     /usr/share/zoneinfo (the package tzdata)"
                .to_owned(),
        })?;
        Ok(Self {
            rule: Rule::Daily(time_of_day, zone),
            missed: Missed::default(),
        })
    }

    /// Sets what happens to missed occurrences. The default is [`Missed::Once`].
    #[must_use]
    pub fn missed(self, missed: Missed) -> Self {
        Self { missed, ..self }
    }

    pub(crate) fn missed_rule(&self) -> Missed {
        self.missed
    }

    pub(crate) fn is_interval(&self) -> bool {
        matches!(self.rule, Rule::Interval(_))
    }

    /// The first occurrence after a moment; the largest number where there is none.
    pub(crate) fn after(&self, at_ns: i64) -> i64 {
        match &self.rule {
            Rule::Interval(period_ns) => {
                let multiple = at_ns.div_euclid(*period_ns).saturating_add(1);
                multiple.saturating_mul(*period_ns)
            }
            Rule::Daily(time, zone) => day_after(*time, zone, at_ns).unwrap_or(i64::MAX),
        }
    }

    /// The occurrence with which a timer that was due at `due_ns` is called, and the next one. An interval counts from
    /// `due_ns`, which is no multiple where the clock was set.
    pub(super) fn take(&self, due_ns: i64, now_ns: i64) -> (i64, i64) {
        let next_ns = |at_ns| match self.rule {
            Rule::Interval(period_ns) => i64::saturating_add(at_ns, period_ns),
            Rule::Daily(..) => self.after(at_ns),
        };
        let last_ns = match self.rule {
            Rule::Interval(period_ns) => due_ns + (now_ns - due_ns).max(0) / period_ns * period_ns,
            Rule::Daily(..) => {
                let mut last_ns = due_ns;
                while self.missed != Missed::All && next_ns(last_ns) <= now_ns {
                    last_ns = next_ns(last_ns);
                }
                last_ns
            }
        };
        match self.missed {
            Missed::Once => (due_ns, next_ns(last_ns)),
            Missed::Skip => (last_ns, next_ns(last_ns)),
            Missed::All => (due_ns, next_ns(due_ns)),
        }
    }

    /// How many occurrences there are from `due_ns` to `end_ns`, both included; of days about as many.
    pub(super) fn count(&self, due_ns: i64, end_ns: i64) -> u64 {
        let period_ns = match self.rule {
            Rule::Interval(period_ns) => period_ns,
            Rule::Daily(..) => DAY_NS,
        };
        let left = i128::from(end_ns) - i128::from(due_ns);
        u64::try_from(left.div_euclid(i128::from(period_ns)) + 1).unwrap_or(0)
    }
}

/// A zone by its name: `UTC`, which needs no database, or one that the machine has.
fn zone_named(name: &str) -> Option<TimeZone> {
    match name {
        "UTC" => Some(TimeZone::UTC),
        _ => TimeZone::get(name).ok(),
    }
}

/// The first moment after `at_ns` at which it is `time` in the zone.
fn day_after(time: Time, zone: &TimeZone, at_ns: i64) -> Option<i64> {
    let at = Timestamp::from_duration(SignedDuration::from_nanos(at_ns)).ok()?;
    let mut day = zone.to_datetime(at).date().yesterday().ok()?;
    loop {
        let moment = zone.to_timestamp(day.to_datetime(time)).ok()?;
        let moment_ns = i64::try_from(moment.as_nanosecond()).ok()?;
        if moment_ns > at_ns {
            return Some(moment_ns);
        }
        day = day.tomorrow().ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(text: &str) -> i64 {
        let at: Timestamp = text.parse().unwrap();
        i64::try_from(at.as_nanosecond()).unwrap()
    }

    #[test]
    fn a_day_has_one_occurrence_also_where_clocks_are_changed() {
        for (time, from, days) in [
            // 02:30 does not exist on March 29th, and comes twice on October 25th.
            (
                "02:30",
                "2026-03-27T23:00:00Z",
                [
                    "2026-03-28T01:30:00Z",
                    "2026-03-29T01:30:00Z",
                    "2026-03-30T00:30:00Z",
                ],
            ),
            (
                "02:30",
                "2026-10-24T12:00:00Z",
                [
                    "2026-10-25T00:30:00Z",
                    "2026-10-26T01:30:00Z",
                    "2026-10-27T01:30:00Z",
                ],
            ),
            (
                "18:00:30",
                "2026-10-24T16:00:30Z",
                [
                    "2026-10-25T17:00:30Z",
                    "2026-10-26T17:00:30Z",
                    "2026-10-27T17:00:30Z",
                ],
            ),
        ] {
            let when = When::daily(time, "Europe/Berlin").unwrap();
            let mut at_ns = ns(from);
            for day in days {
                at_ns = when.after(at_ns);
                assert_eq!(at_ns, ns(day), "{time} after {from}");
            }
        }
    }

    #[test]
    fn what_is_no_time_or_no_zone_is_refused() {
        for (time, zone, text) in [
            ("25:00", "UTC", "25:00: it is no time of the day"),
            ("6pm", "UTC", "6pm: it is no time of the day"),
            ("1800", "UTC", "1800: it is no time of the day"),
            ("18:00", "Mars/Base", "Mars/Base: this machine knows no"),
            ("18:00", "", ": this machine knows no"),
        ] {
            let error = When::daily(time, zone).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn the_end_of_time_is_no_occurrence() {
        let when = When::daily("18:00", "UTC").unwrap();
        assert_eq!(when.after(i64::MAX), i64::MAX);
    }
}
