//! The pace of an operator: how many items it processes in a turn.
//!
//! A turn of an operator is bounded by time as well as by size, so that commits, signals and metrics wait for
//! at most about [`TURN_NS`] of work, or for one item if that takes longer. No step reads the clock: an
//! operator measures its turns, and receives only as many items as fit into the next one. It begins with few
//! and grows.

use crate::control::in_flight::Slow;

/// The intended work of a turn.
pub(crate) const TURN_NS: u64 = 1_000_000;
/// The work that may be in flight to a slow worker.
const IN_FLIGHT_NS: u64 = 10_000_000;
/// The largest growth of a turn over the one before.
const GROWTH: usize = 4;

/// The number of items that an operator processes in a turn.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: usize,
    /// Set after a turn took too long, until [`TURN_ITEMS_MAX`] items fit into a turn.
    slow: Option<Slow>,
    /// True if turns are not bounded, so that they are the same in each run.
    unbounded: bool,
}

/// The number of items in a turn above which the limit no longer grows.
const TURN_ITEMS_MAX: usize = 4096;

impl Pace {
    /// Creates an unknown pace: the first turn has `first` items.
    pub(crate) fn new(first: usize, unbounded: bool) -> Self {
        Pace {
            limit: first.max(1),
            slow: None,
            unbounded,
        }
    }

    /// Returns the largest number of items of the next turn.
    pub(crate) fn limit(&self) -> usize {
        if self.unbounded {
            usize::MAX
        } else {
            self.limit
        }
    }

    /// Whether a turn that has run for `elapsed_ns` and processed `items` items must end.
    pub(crate) fn is_over(&self, items: usize, elapsed_ns: u64) -> bool {
        !self.unbounded && (items >= self.limit || elapsed_ns >= TURN_NS)
    }

    /// Returns the capacity to publish to senders, if this operator is slow.
    pub(crate) fn slow(&self) -> Option<Slow> {
        self.slow
    }

    /// Learns from a turn that processed `items` items in `elapsed_ns`.
    pub(crate) fn learn(&mut self, items: usize, elapsed_ns: u64) {
        if items == 0 || self.unbounded {
            return;
        }
        let within =
            |ns: u64| (items as u128 * u128::from(ns) / u128::from(elapsed_ns.max(1))) as usize;
        let fit = within(TURN_NS).max(1);
        if elapsed_ns > TURN_NS {
            self.limit = fit.min(self.limit);
            self.slow = Some(Slow {
                turn: self.limit,
                in_flight: within(IN_FLIGHT_NS).max(1),
            });
        } else if items >= self.limit {
            self.limit = fit.min(self.limit.saturating_mul(GROWTH)).max(self.limit);
            self.slow = self
                .slow
                .filter(|_| self.limit < TURN_ITEMS_MAX)
                .map(|_| Slow {
                    turn: self.limit,
                    in_flight: within(IN_FLIGHT_NS).max(self.limit),
                });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of turns of an operator that takes `item_ns` for an item.
    fn turns(pace: &mut Pace, item_ns: u64, count: usize) -> Vec<usize> {
        let mut sizes = Vec::new();
        for _ in 0..count {
            let mut items = 0;
            while !pace.is_over(items, items as u64 * item_ns) {
                items += 1;
            }
            pace.learn(items, items as u64 * item_ns);
            sizes.push(items);
        }
        sizes
    }

    #[test]
    fn a_slow_operator_receives_one_item_at_a_time() {
        let mut pace = Pace::new(1, false);
        assert_eq!(turns(&mut pace, 5_000_000, 4), [1; 4]);
        assert_eq!(
            pace.slow(),
            Some(Slow {
                turn: 1,
                in_flight: 2
            })
        );
        assert_eq!(turns(&mut pace, 500_000_000, 4), [1; 4]);
        assert_eq!(
            pace.slow(),
            Some(Slow {
                turn: 1,
                in_flight: 1
            })
        );
    }

    #[test]
    fn a_turn_grows_up_to_its_intended_work() {
        let mut pace = Pace::new(1, false);
        assert_eq!(
            turns(&mut pace, 100, 9),
            [1, 4, 16, 64, 256, 1024, 4096, 10_000, 10_000]
        );
        assert_eq!(pace.slow(), None);
        let mut pace = Pace::new(1, false);
        assert_eq!(turns(&mut pace, 20_000, 5), [1, 4, 16, 50, 50]);
    }

    #[test]
    fn the_pace_follows_an_operator_that_becomes_slow_and_fast_again() {
        let mut pace = Pace::new(1, false);
        turns(&mut pace, 1_000, 9);
        assert_eq!(pace.limit(), 1_000);
        // The current batch is not divided: it takes the time that it takes.
        pace.learn(1_000, 5_000_000_000);
        assert_eq!(
            (pace.limit(), pace.slow().map(|slow| slow.turn)),
            (1, Some(1))
        );
        assert_eq!(turns(&mut pace, 100, 7), [1, 4, 16, 64, 256, 1024, 4096]);
        assert_eq!(pace.slow(), None);
    }

    #[test]
    fn few_items_do_not_change_the_pace() {
        let mut pace = Pace::new(64, false);
        // One item and the fixed cost of a turn.
        pace.learn(1, 30_000);
        assert_eq!((pace.limit(), pace.slow()), (64, None));
        pace.learn(0, 9_000_000);
        assert_eq!((pace.limit(), pace.slow()), (64, None));
    }

    #[test]
    fn unbounded_turns_do_not_change_the_pace() {
        let mut pace = Pace::new(1, true);
        pace.learn(1, 9_000_000_000);
        assert_eq!((pace.limit(), pace.slow()), (usize::MAX, None));
        assert!(!pace.is_over(1_000_000, u64::MAX));
    }
}
