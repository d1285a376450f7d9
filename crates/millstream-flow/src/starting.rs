//! The start of a run, while it waits for the servers of its sources.
//!
//! A server that is away when a flow starts is no other case than one that goes away later: the flow waits for it. The
//! reason is in the log, and a view of the start shows it.
//!
//! ```
//! use std::time::Duration;
//!
//! use millstream_flow::starting::Starting;
//!
//! let starting = Starting::default();
//! assert_eq!(starting.waits_for(), None);
//! starting.wait("kafka n1:9092: no broker answers", Duration::from_millis(1))?;
//! assert_eq!(starting.waits_for().as_deref(), Some("kafka n1:9092: no broker answers"));
//! # Ok::<(), millstream_flow::starting::StartStopped>(())
//! ```

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use thiserror::Error;

/// How often a wait looks for a request to stop.
const LOOK: Duration = Duration::from_millis(20);

/// The error of a start that was stopped while it waited: the run ends without an error.
#[derive(Clone, Copy, Debug, Error)]
#[error("stopped while it waited for the server of a source")]
pub struct StartStopped;

/// Returns whether the run was asked to stop.
type Stopping = Arc<dyn Fn() -> bool + Send + Sync>;

/// What the start of a run waits for. Clones are of the same start.
#[derive(Clone, Default)]
pub struct Starting {
    stopping: Vec<Stopping>,
    reason: Arc<(Mutex<Option<String>>, Condvar)>,
}

impl std::fmt::Debug for Starting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starting").finish_non_exhaustive()
    }
}

impl Starting {
    /// The same start, which is given up when `stopping` returns true.
    #[must_use]
    pub fn until(mut self, stopping: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stopping.push(Arc::new(stopping));
        self
    }

    /// Returns what the start waits for, in words.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let reason = self.reason.0.lock();
        reason.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a time, for this reason; a view of the start shows it.
    ///
    /// # Errors
    /// The run was asked to stop.
    pub fn wait(&self, reason: &str, time: Duration) -> Result<(), StartStopped> {
        let (lock, changed) = &*self.reason;
        let mut left = time;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        loop {
            self.check()?;
            if left.is_zero() {
                return Ok(());
            }
            let slice = left.min(LOOK);
            let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_timeout(held, slice));
            left -= slice;
        }
    }

    /// Checks whether the run was asked to stop.
    ///
    /// # Errors
    /// It was.
    pub fn check(&self) -> Result<(), StartStopped> {
        if self.stopping.iter().any(|stopping| stopping()) {
            Err(StartStopped)
        } else {
            Ok(())
        }
    }

    /// The start waits no longer.
    pub(crate) fn go(&self) {
        *self.reason.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_wait_ends_when_the_run_is_asked_to_stop() {
        let asked = Arc::new(AtomicBool::new(false));
        let of_start = Arc::clone(&asked);
        let starting = Starting::default().until(move || of_start.load(Ordering::Relaxed));
        starting.wait("a", Duration::ZERO).unwrap();
        asked.store(true, Ordering::Relaxed);
        let stopped = starting.wait("b", Duration::from_secs(3600));
        assert!(stopped.is_err());
        assert_eq!(starting.waits_for().as_deref(), Some("b"));
        starting.go();
        assert_eq!(starting.waits_for(), None);
    }
}
