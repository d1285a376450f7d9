//! Waiting for a number to change, and waking all who wait at once.
//!
//! A condition variable hands its mutex from one waiter to the next; with many waiters that is what a group commit would spend its time
//! on. Here a waiter that wakes looks at the number and goes on.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number that waiters watch.
#[derive(Default)]
pub(crate) struct Gate {
    round: AtomicU32,
}

impl Gate {
    /// The number now. What is looked at after this and before [`wait`](Self::wait) cannot change unnoticed.
    pub fn round(&self) -> u32 {
        self.round.load(Ordering::SeqCst)
    }

    /// Sleep while the number is `round`; may return early.
    #[cfg(target_os = "linux")]
    pub fn wait(&self, round: u32) {
        use rustix::thread::futex::{Flags, wait};
        // A number that has changed, a signal: the caller looks again in each case.
        let _reason = wait(&self.round, Flags::PRIVATE, round, None);
    }

    /// Change the number and wake all.
    #[cfg(target_os = "linux")]
    pub fn open(&self) {
        use rustix::thread::futex::{Flags, wake};
        self.round.fetch_add(1, Ordering::SeqCst);
        let _woken = wake(&self.round, Flags::PRIVATE, i32::MAX as u32);
    }

    /// Without a futex: give others the processor, and look again.
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
