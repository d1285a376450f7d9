//! The pace of an operator: how many items it handles in a turn.
//!
//! A turn of an operator is bounded by time as well as by size, so that commits, signals and metrics wait for no more than
//! about [`TURN_NS`] of work, or for one item where that takes longer. Nothing inside a step looks at the clock: an operator
//! measures its turns, and is given only as many items as fit into the next one. It begins with few and grows.

/// How much work a turn is to be.
pub(crate) const TURN_NS: u64 = 1_000_000;
/// How much work may be on its way to a worker that is slow.
const IN_FLIGHT_NS: u64 = 10_000_000;
/// By how much a turn may be larger than the one before.
const GROWTH: usize = 4;

/// What a worker that is slow can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slow {
    /// Items that fit into a turn.
    pub(crate) turn: usize,
    /// Items that may be on their way.
    pub(crate) in_flight: usize,
}

/// How many items an operator handles in a turn.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: usize,
    /// True once a turn took too long, until as many items fit as one could wish for.
    slow: Option<Slow>,
    /// True where turns are not bounded, so that they are the same in each run.
    unbounded: bool,
}

/// So many items in a turn are enough for anybody.
const ENOUGH: usize = 4096;

impl Pace {
    /// A pace that is not known yet: the first turn has so many items.
    pub(crate) fn new(first: usize, unbounded: bool) -> Self {
        Pace {
            limit: first.max(1),
            slow: None,
            unbounded,
        }
    }

    /// How many items the next turn has at most.
    pub(crate) fn limit(&self) -> usize {
        if self.unbounded {
            usize::MAX
        } else {
            self.limit
        }
    }

    /// Whether a turn is over that began so long ago and has handled so many items.
    pub(crate) fn is_over(&self, items: usize, elapsed_ns: u64) -> bool {
        !self.unbounded && (items >= self.limit || elapsed_ns >= TURN_NS)
    }

    /// What is to be told to those who send, if this is slow.
    pub(crate) fn slow(&self) -> Option<Slow> {
        self.slow
    }

    /// A turn has handled so many items in so long.
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
            self.slow = self.slow.filter(|_| self.limit < ENOUGH).map(|_| Slow {
                turn: self.limit,
                in_flight: within(IN_FLIGHT_NS).max(self.limit),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of turns of an operator that takes so long for an item.
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
    fn a_slow_operator_is_given_one_item_at_a_time_from_the_first() {
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
    fn a_turn_grows_until_it_takes_its_time() {
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
    fn an_operator_that_becomes_slow_and_quick_again_is_followed() {
        let mut pace = Pace::new(1, false);
        turns(&mut pace, 1_000, 9);
        assert_eq!(pace.limit(), 1_000);
        // The batch in hand is not cut by anybody: it took as long as it took.
        pace.learn(1_000, 5_000_000_000);
        assert_eq!(
            (pace.limit(), pace.slow().map(|slow| slow.turn)),
            (1, Some(1))
        );
        assert_eq!(turns(&mut pace, 100, 7), [1, 4, 16, 64, 256, 1024, 4096]);
        assert_eq!(pace.slow(), None);
    }

    #[test]
    fn few_items_say_little() {
        let mut pace = Pace::new(64, false);
        // One item and what every turn costs.
        pace.learn(1, 30_000);
        assert_eq!((pace.limit(), pace.slow()), (64, None));
        pace.learn(0, 9_000_000);
        assert_eq!((pace.limit(), pace.slow()), (64, None));
    }

    #[test]
    fn where_turns_are_not_bounded_nothing_is_learnt() {
        let mut pace = Pace::new(1, true);
        pace.learn(1, 9_000_000_000);
        assert_eq!((pace.limit(), pace.slow()), (usize::MAX, None));
        assert!(!pace.is_over(1_000_000, u64::MAX));
    }
}
