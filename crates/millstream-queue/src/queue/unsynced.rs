//! The changes of a queue that a loss of power may take, and the sync that another thread does of them.

use std::ops::Range;

use crate::moment::Moment;

/// When the oldest change was made that may not be durable.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    since_us: Option<u64>,
    running: Option<Running>,
}

/// A sync of the changes before a position.
#[derive(Clone, Copy, Debug)]
struct Running {
    before: u64,
    begun_us: u64,
}

impl Unsynced {
    pub(super) fn since(since_us: Option<u64>) -> Self {
        Unsynced {
            since_us,
            running: None,
        }
    }

    /// A change is made. Those in this range, which were made before, are not durable.
    #[inline]
    pub(super) fn note(&mut self, changes: &Range<u64>, now: Moment) {
        let oldest_us = if changes.is_empty() {
            None
        } else {
            self.oldest_us(changes)
        };
        self.running = self
            .running
            .filter(|running| running.before > changes.start);
        self.since_us = oldest_us.or(Some(now.steady_us));
    }

    /// When the oldest of the changes was made, on the steady clock. In the log those in this range are not durable.
    #[inline]
    pub(super) fn oldest_us(&self, changes: &Range<u64>) -> Option<u64> {
        match self.running {
            // What is left was made after the sync had begun.
            Some(running) if running.before <= changes.start => {
                (!changes.is_empty()).then_some(running.begun_us)
            }
            _ => self.since_us,
        }
    }

    /// A sync of these changes begins, unless one is running.
    pub(super) fn begin(&mut self, changes: &Range<u64>, now: Moment) -> bool {
        if self
            .running
            .is_some_and(|running| running.before > changes.start)
        {
            return false;
        }
        self.running = Some(Running {
            before: changes.end,
            begun_us: now.steady_us,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(steady_us: u64) -> Moment {
        Moment {
            wall_ms: 0,
            steady_us,
        }
    }

    #[test]
    fn the_oldest_change_is_known_before_during_and_after_a_sync_of_another_thread() {
        let mut unsynced = Unsynced::default();
        assert_eq!(unsynced.oldest_us(&(0..0)), None);
        unsynced.note(&(0..0), at(1));
        unsynced.note(&(0..1), at(2));
        assert_eq!(unsynced.oldest_us(&(0..2)), Some(1));
        assert!(unsynced.begin(&(0..2), at(10)));
        assert!(!unsynced.begin(&(0..2), at(11)));
        unsynced.note(&(0..2), at(12));
        assert_eq!(unsynced.oldest_us(&(0..3)), Some(1));
        // It is over: what was noted meanwhile is left.
        assert_eq!(unsynced.oldest_us(&(2..3)), Some(10));
        unsynced.note(&(2..3), at(13));
        assert_eq!(unsynced.oldest_us(&(2..4)), Some(10));
        assert!(unsynced.begin(&(2..4), at(20)));
        assert_eq!(unsynced.oldest_us(&(4..4)), None);
        // Long after: nothing is left of it.
        unsynced.note(&(4..4), at(900));
        assert_eq!(unsynced.oldest_us(&(4..5)), Some(900));
        assert!(unsynced.begin(&(4..5), at(910)));
        // Another sync covers it, and a change comes in between.
        unsynced.note(&(5..5), at(950));
        assert_eq!(unsynced.oldest_us(&(5..6)), Some(950));
    }
}
