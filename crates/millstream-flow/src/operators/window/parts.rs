//! The parts of sliding windows: a window of many panes is merged from a few parts that it shares with others.
//!
//! Panes are numbered along the grid, and a part of level `k` has `2^k` of them, from a multiple of `2^k` on. A window
//! is at most two parts of each level, so that a result takes as many steps as the number of panes has digits, and each
//! part is merged once.
//!
//! Invariant: a part depends on its panes alone, all of which are complete, and not on when it was merged. So parts are
//! not saved, and a result, whose last digits may depend on the order of its sums, is the same after a restart. The
//! idea is that of FlatFAT (Tangwongsan et al., VLDB 2015).

use std::collections::BTreeMap;
use std::ops::Range;

use super::aggregate::Aggregate;

/// The longest part: 2^30 panes.
const LEVEL_MAX: u32 = 30;

/// The parts that were merged, by their level less one and their number; `None` has no items.
pub(super) struct Parts<A> {
    levels: Vec<BTreeMap<i64, Option<A>>>,
}

impl<A> Default for Parts<A> {
    fn default() -> Self {
        Parts { levels: Vec::new() }
    }
}

/// The panes of a key, by their numbers.
pub(super) trait Leaves<A> {
    /// Whether any of these panes has items.
    fn has_any(&self, numbers: Range<i64>) -> bool;
    /// The accumulators of a pane: more than one if items came late.
    fn of<'a>(&'a self, number: i64) -> impl Iterator<Item = &'a A>
    where
        A: 'a;
}

impl<A> Parts<A> {
    /// Merges the panes with these numbers; `None` if none of them has items.
    pub(super) fn merged<G: Aggregate<Acc = A>>(
        &mut self,
        numbers: Range<i64>,
        leaves: &impl Leaves<A>,
        aggregate: &mut G,
    ) -> Result<Option<A>, G::Error> {
        if !leaves.has_any(numbers.clone()) {
            return Ok(None);
        }
        let mut acc = aggregate.initial()?;
        let mut at = numbers.start;
        while at < numbers.end {
            let mut level = at.trailing_zeros().min(LEVEL_MAX);
            while at + (1 << level) > numbers.end {
                level -= 1;
            }
            self.add(level, at >> level, &mut acc, leaves, aggregate)?;
            at += 1 << level;
        }
        Ok(Some(acc))
    }

    /// Adds a part to an accumulator.
    fn add<G: Aggregate<Acc = A>>(
        &mut self,
        level: u32,
        number: i64,
        acc: &mut A,
        leaves: &impl Leaves<A>,
        aggregate: &mut G,
    ) -> Result<(), G::Error> {
        let Some(above) = level.checked_sub(1) else {
            let mut panes = leaves.of(number);
            return panes.try_for_each(|pane| aggregate.merge(acc, pane));
        };
        let place = above as usize;
        if !self
            .levels
            .get(place)
            .is_some_and(|level| level.contains_key(&number))
        {
            let made = if leaves.has_any(number << level..(number + 1) << level) {
                let mut whole = aggregate.initial()?;
                self.add(above, number * 2, &mut whole, leaves, aggregate)?;
                self.add(above, number * 2 + 1, &mut whole, leaves, aggregate)?;
                Some(whole)
            } else {
                None
            };
            if self.levels.len() <= place {
                self.levels.resize_with(place + 1, BTreeMap::new);
            }
            self.levels[place].insert(number, made);
        }
        match self.levels[place].get(&number) {
            Some(Some(part)) => aggregate.merge(acc, part),
            _ => Ok(()),
        }
    }

    /// Drops the parts that begin before this pane.
    pub(super) fn drop_before(&mut self, number: i64) {
        for (level, parts) in (1..).zip(&mut self.levels) {
            while let Some(first) = parts.first_entry()
                && first.key() << level < number
            {
                first.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Cause;
    use crate::operators::window::Bounds;

    /// Notes which panes were merged, in order, and counts merges.
    struct Panes(u32);

    impl Aggregate for Panes {
        type In = ();
        type Acc = Vec<i64>;
        type Out = Vec<i64>;
        type Error = Cause;
        fn initial(&mut self) -> Result<Vec<i64>, Cause> {
            Ok(Vec::new())
        }
        fn add(&mut self, _: &mut Vec<i64>, (): ()) -> Result<(), Cause> {
            Ok(())
        }
        fn merge(&mut self, acc: &mut Vec<i64>, later: &Vec<i64>) -> Result<(), Cause> {
            self.0 += 1;
            acc.extend(later);
            Ok(())
        }
        fn result(&mut self, acc: &mut Vec<i64>, _: Bounds) -> Result<Vec<i64>, Cause> {
            Ok(acc.clone())
        }
    }

    /// The panes with some numbers; each has its own number, and multiples of the second field have it twice.
    struct Multiples(BTreeMap<i64, Vec<i64>>, i64);

    impl Multiples {
        fn new(of: i64, twice: i64) -> Self {
            let all = (-300..300).filter(|n| n % of == 0);
            Multiples(all.map(|n| (n, vec![n])).collect(), twice)
        }

        fn expected(&self, numbers: Range<i64>) -> Vec<i64> {
            let inside = self.0.range(numbers).map(|(number, _)| *number);
            let twice = |n: i64| std::iter::repeat_n(n, if n % self.1 == 0 { 2 } else { 1 });
            inside.flat_map(twice).collect()
        }
    }

    impl Leaves<Vec<i64>> for Multiples {
        fn has_any(&self, numbers: Range<i64>) -> bool {
            self.0.range(numbers).next().is_some()
        }
        fn of<'a>(&'a self, number: i64) -> impl Iterator<Item = &'a Vec<i64>>
        where
            Vec<i64>: 'a,
        {
            let pane = self.0.get(&number);
            pane.into_iter()
                .chain(pane.filter(|_| number % self.1 == 0))
        }
    }

    #[test]
    fn a_window_has_its_panes_in_order_and_takes_few_merges() {
        for (of, twice) in [(1, 1000), (1, 3), (7, 14), (250, 1)] {
            let leaves = Multiples::new(of, twice);
            for length in [1, 2, 3, 16, 100] {
                let mut parts = Parts::default();
                let mut aggregate = Panes(0);
                for start in -200..100 {
                    let merged = parts.merged(start..start + length, &leaves, &mut aggregate);
                    let expected = leaves.expected(start..start + length);
                    assert_eq!(merged.unwrap().unwrap_or_default(), expected);
                    parts.drop_before(start + 1);
                }
                let most = 300 * (2 + 2 * length.ilog2()) * 3 + 200;
                assert!(
                    aggregate.0 < most,
                    "{} merges of {length} panes",
                    aggregate.0
                );
                let kept: usize = parts.levels.iter().map(BTreeMap::len).sum();
                assert!(kept < 2 * length as usize, "{kept} parts are kept");
            }
        }
    }
}
