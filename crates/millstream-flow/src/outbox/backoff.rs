//! The delays between attempts.

use std::time::Duration;

/// The delay after each failed attempt, and the number of attempts. There is no random part: the same failures have the
/// same delays.
///
/// ```
/// use std::time::Duration;
///
/// use millstream_flow::outbox::Backoff;
///
/// let backoff = Backoff::default();
/// assert_eq!(backoff.delay(1), Duration::from_millis(100));
/// assert_eq!(backoff.delay(3), Duration::from_millis(400));
/// assert_eq!(backoff.delay(1_000_000), Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failed attempt.
    pub first: Duration,
    /// The longest delay.
    pub most: Duration,
    /// The factor from each delay to the next, at least 1.
    pub factor: f64,
    /// The number of attempts in a row before giving up; `None` never gives up.
    pub tries: Option<u64>,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_secs(30),
            factor: 2.0,
            tries: None,
        }
    }
}

impl Backoff {
    /// Returns the delay after `attempt` attempts have failed in a row; they are counted from 1.
    #[must_use]
    pub fn delay(&self, attempt: u64) -> Duration {
        let steps = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.max(1.0).powi(steps);
        // Beyond the longest delay, and where the power overflows, the longest delay applies.
        if seconds < self.most.as_secs_f64() {
            Duration::from_secs_f64(seconds)
        } else {
            self.most
        }
    }

    /// Returns true if the last of `attempt` failed attempts in a row is the last one of all.
    #[must_use]
    pub fn gives_up(&self, attempt: u64) -> bool {
        self.tries.is_some_and(|tries| attempt >= tries)
    }
}
