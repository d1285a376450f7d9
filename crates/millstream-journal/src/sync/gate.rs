//! Waiting for a number to change, and waking all waiters at once.
//!
//! A condition variable passes its mutex from one waiter to the next; with many waiters a group commit would spend its
//! time on that. Here a waiter that wakes loads the number and continues.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number that waiters watch.
#[derive(Default)]
pub(crate) struct Gate {
    round: AtomicU32,
}

impl Gate {
    /// The current number. A change between this call and [`wait`](Self::wait) is not missed.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::SeqCst)
    }

    /// Sleep while the number is `round`; may return early.
    #[cfg(target_os = "linux")]
    pub fn wait(&self, round: u32) {
        use rustix::thread::futex::{Flags, wait};
        // A number that has changed, a signal: the caller checks again in each case.
        let _reason = wait(&self.round, Flags::PRIVATE, round, None);
    }

    /// Change the number and wake all.
    #[cfg(target_os = "linux")]
    pub fn open(&self) {
        use rustix::thread::futex::{Flags, wake};
        self.round.fetch_add(1, Ordering::SeqCst);
        let _woken = wake(&self.round, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Without a futex: yield the processor, and check again.
    #[cfg(not(target_os = "linux"))]
    pub fn wait(&self, _round: u32) {
        std::thread::yield_now();
    }

    /// Change the number.
    #[cfg(not(target_os = "linux"))]
    pub fn open(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
    }
}
