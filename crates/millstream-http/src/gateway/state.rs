//! What the threads of a gateway share: whether it is stopped, and why it cannot work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::error::Cause;

use crate::lock;

/// What the threads of a gateway share.
#[derive(Default)]
pub(super) struct State {
    stopped: AtomicBool,
    failure: Mutex<Option<Cause>>,
    failed: Condvar,
}

impl State {
    /// Keeps the first error.
    pub(super) fn fail(&self, cause: Cause) {
        lock(&self.failure).get_or_insert(cause);
        self.failed.notify_all();
    }

    /// Waits for an error, `limit` at most, and takes it.
    pub(super) fn wait(&self, limit: Duration) -> Option<Cause> {
        let failure = lock(&self.failure);
        let waited = self
            .failed
            .wait_timeout_while(failure, limit, |failure| failure.is_none());
        let (mut failure, _) = waited.unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
