//! Wakes the workers of this process that sleep in their pollers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mio::Waker;

/// The wake-ups of the workers of this process.
pub(crate) struct Wakers {
    /// The number of the first worker of this process.
    first: usize,
    wakers: Vec<OnceLock<Arc<Waker>>>,
    /// Changes when sources must check the state of the run.
    source_signals: AtomicU64,
}

impl Wakers {
    pub(crate) fn new(local: Range<usize>) -> Self {
        Wakers {
            first: local.start,
            wakers: local.map(|_| OnceLock::new()).collect(),
            source_signals: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, worker: usize, waker: Arc<Waker>) {
        let _ = self.wakers[worker - self.first].set(waker);
    }

    /// Wakes a worker by its index in this process, once it has a poller.
    pub(super) fn wake(&self, index: usize) {
        if let Some(waker) = self.wakers[index].get() {
            // A waker fails only after its poller was dropped, and then need not be woken.
            let _ = waker.wake();
        }
    }

    pub(crate) fn wake_all(&self) {
        (0..self.wakers.len()).for_each(|index| self.wake(index));
    }

    /// Lets all sources check the state of the run.
    pub(crate) fn signal_sources(&self) {
        self.source_signals.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    /// Returns a number that changes when sources must check the state of the run.
    pub(crate) fn source_signals(&self) -> u64 {
        self.source_signals.load(Ordering::Relaxed)
    }
}
