//! How long an item that was delivered in vain waits.

use std::time::Duration;

use millstream_journal::times;
use serde::Deserialize;

use super::time::Time;

/// The factor that is used where the table says none.
const FACTOR: f64 = 2.0;
/// The longest delay where the table says none.
const MOST: Duration = Duration::from_secs(3_600);

/// Delays that grow with the number of deliveries: each is `factor` times as long as the one before, and none longer
/// than `most`.
///
/// ```
/// use std::time::Duration;
/// use millstream_queue::config::Config;
///
/// let config: Config = "[queue.mail]\nretry = { first = '1s', factor = 3, most = '20s', tries = 5 }".parse()?;
/// let settings = config.settings("mail");
/// let delays = (1..5).map(|deliveries| settings.retry.unwrap().delay(deliveries).as_secs());
/// assert_eq!(delays.collect::<Vec<_>>(), [1, 3, 9, 20]);
/// assert_eq!(settings.max_deliveries, Some(5));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Retry {
    /// The delay after the first delivery.
    pub first: Duration,
    /// By how much each delay is longer than the one before.
    pub factor: f64,
    /// The longest delay.
    pub most: Duration,
}

// A factor is a number, never NaN: the table refuses others.
impl Eq for Retry {}

impl Retry {
    /// The delay of an item that was delivered in vain so many times, at least once.
    #[must_use]
    pub fn delay(&self, deliveries: u32) -> Duration {
        let times = self
            .factor
            .powi(deliveries.saturating_sub(1).min(1_000) as i32);
        let most = self.most.as_secs_f64();
        Duration::from_secs_f64((self.first.as_secs_f64() * times).min(most))
    }
}

/// The table `retry` of a queue. A `first` of 0 takes an inherited one back.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Said")]
pub(super) struct Table {
    delays: Option<Retry>,
    tries: Option<u32>,
}

impl Eq for Table {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { first = \"1s\" }")]
struct Said {
    first: Time,
    #[serde(default)]
    factor: Option<f64>,
    #[serde(default)]
    most: Option<Time>,
    #[serde(default)]
    tries: Option<u32>,
}

impl Table {
    pub(super) fn delays(&self) -> Option<Retry> {
        self.delays
    }

    /// The number of deliveries, another word for `max_deliveries`.
    pub(super) fn tries(&self) -> Option<u32> {
        self.tries
    }
}

impl TryFrom<Said> for Table {
    type Error = String;

    fn try_from(said: Said) -> Result<Self, String> {
        let Said {
            first,
            factor,
            most,
            tries,
        } = said;
        let retry = Retry {
            first: first.0,
            factor: factor.unwrap_or(FACTOR),
            most: most.map_or(MOST.max(first.0), |most| most.0),
        };
        if !(1.0..=1_000.0).contains(&retry.factor) {
            return Err(format!(
                "the factor of retry is {}, not 1 to 1000",
                retry.factor
            ));
        }
        if retry.most < retry.first {
            return Err(format!(
                "the longest delay of retry, {}, is shorter than the first, {}",
                times::text_of(retry.most),
                times::text_of(retry.first)
            ));
        }
        Ok(Table {
            delays: (!retry.first.is_zero()).then_some(retry),
            tries,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_mistake_is_named() {
        for (text, expected) in [
            (
                "[queue.a]\nretry = { first = '1s', factor = 0.5 }",
                "line 2: the factor of retry is 0.5, not 1 to 1000",
            ),
            (
                "[queue.a]\nretry = { first = '1s', most = '500ms' }",
                "line 2: the longest delay of retry, 500ms, is shorter than the first, 1s",
            ),
            (
                "[queue.a]\nmax_deliveries = 3\nretry = { first = '1s', tries = 3 }",
                "queue.a: max_deliveries and the tries of retry say the same thing",
            ),
            (
                "[queue.a]\nretry = { fist = '1s' }",
                "line 2: unknown field `fist`",
            ),
            (
                "[queue.a]\nretry = '1s'",
                "line 2: invalid type: string \"1s\", expected a table such as { first = \"1s\" }",
            ),
        ] {
            let error = text.parse::<Config>().unwrap_err();
            assert!(error.starts_with(expected), "{text:?} gives {error:?}");
        }
    }
}
