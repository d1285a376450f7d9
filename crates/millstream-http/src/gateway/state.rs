//! What the threads of a gateway share: whether it is stopped, and why it cannot work.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::error::{Cause, chain};

use crate::lock;

/// What the threads of a gateway share.
#[derive(Default)]
pub(super) struct State {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    is_stopped: bool,
    failure: Option<Cause>,
    /// Whether the program asks for errors.
    asks: bool,
}

impl State {
    /// Keeps the first error. Where the program has never asked for errors it is logged; returns whether it was.
    pub(super) fn fail(&self, cause: Cause) -> bool {
        let mut known = lock(&self.known);
        let is_logged = known.failure.is_none() && !known.asks;
        if is_logged {
            log(&cause);
        }
        known.failure.get_or_insert(cause);
        drop(known);
        self.changed.notify_all();
        is_logged
    }

    /// Logs an error that the program asks for and has not taken; returns whether there was one.
    pub(super) fn log_untaken(&self) -> bool {
        let mut known = lock(&self.known);
        let asks = known.asks;
        let untaken = known.failure.take().filter(|_| asks);
        untaken.inspect(log).is_some()
    }

    /// Waits for an error, `limit` at most, and takes it.
    pub(super) fn take_failure(&self, limit: Duration) -> Option<Cause> {
        let mut known = lock(&self.known);
        known.asks = true;
        let waited = self
            .changed
            .wait_timeout_while(known, limit, |known| known.failure.is_none());
        let (mut known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.failure.take()
    }

    pub(super) fn stop(&self) {
        lock(&self.known).is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.known).is_stopped
    }

    /// Waits until the gateway is stopped, `limit` at most.
    pub(super) fn wait_stopped(&self, limit: Duration) {
        let known = lock(&self.known);
        let waited = self
            .changed
            .wait_timeout_while(known, limit, |known| !known.is_stopped);
        drop(waited);
    }
}

fn log(cause: &Cause) {
    tracing::error!(
        "the gateway of services does not do its work any more: {}",
        chain(&**cause)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_unless_the_program_takes_it() {
        let never_asked = State::default();
        assert!(never_asked.fail("a full disk".into()));
        assert!(!never_asked.fail("again".into()));
        assert!(!never_asked.log_untaken());
        let asks = State::default();
        assert!(asks.take_failure(Duration::ZERO).is_none());
        assert!(!asks.fail("a full disk".into()));
        assert!(asks.take_failure(Duration::ZERO).is_some());
        assert!(!asks.log_untaken());
        assert!(!asks.fail("again".into()));
        assert!(asks.log_untaken());
    }
}
