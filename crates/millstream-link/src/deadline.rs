//! A moment until which something may take time.

use std::time::{Duration, Instant};

/// A moment of the clock of this process that never goes back.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the moment `wait` from now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the time of a handshake has no part in results"
    )]
    pub fn after(wait: Duration) -> Self {
        Deadline(Instant::now() + wait)
    }

    /// Returns the time left; `None` when it is over.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "as above")]
    pub fn left(&self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Returns the earlier of two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Deadline(self.0.min(other.0))
    }
}
