//! When a worker polls instead of sleeping: for a moment after each batch, while batches come quickly.
//!
//! The wake-up of a sleeping thread takes about 5 us, on a virtual machine whose core has stopped 30 to 50 us, and
//! sometimes milliseconds. A worker that is fed without a long pause would pay that each time it has caught up. It does
//! not poll where the next batch would come too late, nor while other threads need its core, and an idle worker sleeps.

use millstream_journal::contention::{Contention, waited_by_this_thread};

use crate::clock::now_ns;

/// How long a worker polls after a batch, if the batch came within this time after the one before.
const POLL_NS: u64 = 100_000;

/// What a worker knows of its last batches and of its core.
pub(super) struct Waiting<W> {
    contention: Contention<W>,
    /// The activity at the last call, and when it was new.
    seen: u64,
    seen_ns: u64,
    /// Whether the last batch came within the time of a poll.
    is_quick: bool,
    /// Until when others need the core.
    paused_until_ns: u64,
}

/// The waits of this thread. With one core no other thread could bring input while it polls.
pub(super) fn of_this_thread() -> Waiting<impl FnMut() -> Option<u64>> {
    let is_alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    let paused_until_ns = if is_alone { u64::MAX } else { 0 };
    Waiting::new(Contention::new(waited_by_this_thread()), paused_until_ns)
}

impl<W: FnMut() -> Option<u64>> Waiting<W> {
    fn new(contention: Contention<W>, paused_until_ns: u64) -> Self {
        Waiting {
            contention,
            seen: 0,
            seen_ns: 0,
            is_quick: false,
            paused_until_ns,
        }
    }

    /// Whether a worker that has processed `activity` batches polls now.
    pub(super) fn polls(&mut self, activity: u64) -> bool {
        self.polls_at(activity, now_ns())
    }

    fn polls_at(&mut self, activity: u64, now: u64) -> bool {
        let passed = now.saturating_sub(self.seen_ns);
        if activity != self.seen {
            self.is_quick = self.seen > 0 && passed < POLL_NS;
            (self.seen, self.seen_ns) = (activity, now);
        } else if passed >= POLL_NS {
            return false;
        }
        if !self.is_quick || now < self.paused_until_ns {
            return false;
        }
        if let Some(pause_us) = self.contention.check(now / 1_000) {
            self.paused_until_ns = now.saturating_add(pause_us * 1_000);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_worker_polls_for_a_while_after_a_quick_batch() {
        let mut waiting = Waiting::new(Contention::new(|| Some(0)), 0);
        assert!(!waiting.polls_at(0, 5));
        assert!(!waiting.polls_at(1, 10));
        assert!(waiting.polls_at(2, 20));
        assert!(waiting.polls_at(2, 19 + POLL_NS));
        assert!(!waiting.polls_at(2, 20 + POLL_NS));
        // The next one came late, and the one after it quickly.
        let late = 30 + POLL_NS;
        assert!(!waiting.polls_at(3, late));
        assert!(waiting.polls_at(4, late + POLL_NS - 1));
        assert!(waiting.polls_at(4, late + 2 * POLL_NS - 2));
        assert!(!waiting.polls_at(4, late + 2 * POLL_NS - 1));
    }

    #[test]
    fn a_worker_whose_core_others_need_sleeps() {
        let waited_us = Cell::new(0);
        let mut waiting = Waiting::new(Contention::new(|| Some(waited_us.get())), 0);
        let ms = 1_000_000;
        let step = 10_000;
        let mut quickly = |activity: u64, at: u64| {
            waiting.polls_at(activity, at);
            waiting.polls_at(activity + 1, at + step)
        };
        assert!(quickly(1, ms));
        waited_us.set(1_500);
        assert!(!quickly(3, 3 * ms));
        assert!(!quickly(5, 100 * ms));
        assert!(quickly(7, 300 * ms));
    }
}
