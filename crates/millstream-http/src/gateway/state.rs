//! What the threads of a gateway share: whether it is stopped, and why it cannot work.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::error::Cause;

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
}

impl State {
    /// Keeps the first error.
    pub(super) fn fail(&self, cause: Cause) {
        lock(&self.known).failure.get_or_insert(cause);
        self.changed.notify_all();
    }

    /// Waits for an error, `limit` at most, and takes it.
    pub(super) fn take_failure(&self, limit: Duration) -> Option<Cause> {
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.known), limit, |known| known.failure.is_none());
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
