//! Ages of items as the recorded values of a histogram: small enough to keep and to subtract each second.
//!
//! The engine's histograms have 35,000 counters, nearly all zero. All have the same bounds, so that equal ages are
//! equal values.

use millstream_flow::metrics::StepMetrics;

use serde::{Deserialize, Serialize};

/// The upper bounds of the buckets that `/metrics` reports, in seconds; the last bucket has none.
pub(crate) const BUCKETS: [f64; 11] = [
    1e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 10.0,
];

/// Ages of items at the end of a step, since they were complete at the source; seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Ages {
    /// Half are younger.
    pub p50: f64,
    /// One in 100 is older.
    pub p99: f64,
    /// One in 1,000 is older.
    pub p999: f64,
}

/// Ages in nanoseconds with their counts, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded(Vec<(u64, u64)>);

impl Recorded {
    /// The ages that a step has recorded so far.
    pub(crate) fn of(step: &StepMetrics) -> Self {
        let recorded = step.latency_ns.iter_recorded();
        let pairs = recorded.map(|value| (value.value_iterated_to(), value.count_at_value()));
        Recorded(pairs.collect())
    }

    /// The ages that were recorded since `earlier`.
    pub(crate) fn since(&self, earlier: &Recorded) -> Self {
        let mut earlier = earlier.0.iter().peekable();
        let mut pairs = Vec::new();
        for &(age, count) in &self.0 {
            while earlier.next_if(|before| before.0 < age).is_some() {}
            let before = earlier
                .next_if(|before| before.0 == age)
                .map_or(0, |before| before.1);
            if count > before {
                pairs.push((age, count - before));
            }
        }
        Recorded(pairs)
    }

    /// Adds the ages of another worker.
    pub(crate) fn add(&mut self, other: &Recorded) {
        self.0.extend_from_slice(&other.0);
        self.0.sort_unstable();
    }

    /// Returns the percentiles; `None` if there is no age.
    pub(crate) fn ages(&self) -> Option<Ages> {
        let total: u64 = self.0.iter().map(|pair| pair.1).sum();
        if total == 0 {
            return None;
        }
        let at = |quantile: f64| {
            let rank = ((quantile * total as f64).ceil() as u64).max(1);
            let mut seen = 0;
            let found = self.0.iter().find(|pair| {
                seen += pair.1;
                seen >= rank
            });
            found.map_or(0.0, |pair| pair.0 as f64 / 1e9)
        };
        Some(Ages {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
        })
    }

    /// Returns the sum in seconds, and how many ages are within each of [`BUCKETS`] and above, not cumulated.
    pub(crate) fn buckets(&self) -> (f64, [u64; BUCKETS.len() + 1]) {
        let mut sum = 0.0;
        let mut counts = [0; BUCKETS.len() + 1];
        for &(age, count) in &self.0 {
            let seconds = age as f64 / 1e9;
            sum += seconds * count as f64;
            counts[BUCKETS.partition_point(|bound| *bound < seconds)] += count;
        }
        (sum, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_ages_since_an_earlier_moment() {
        let before = Recorded(vec![(10, 5), (20, 1)]);
        let now = Recorded(vec![(10, 5), (15, 1), (20, 99), (1_000_000, 1)]);
        let since = now.since(&before);
        assert_eq!(since.0, [(15, 1), (20, 98), (1_000_000, 1)]);
        let ages = since.ages().unwrap();
        assert_eq!((ages.p50, ages.p99, ages.p999), (2e-8, 2e-8, 1e-3));
        assert_eq!(before.since(&before).ages(), None);
        let mut both = before.clone();
        both.add(&Recorded(vec![(5, 1)]));
        assert_eq!(both.0, [(5, 1), (10, 5), (20, 1)]);
    }

    #[test]
    fn a_bucket_contains_its_bound() {
        let recorded = Recorded(vec![(10_000, 2), (10_001, 3), (60_000_000_000, 1)]);
        let (sum, counts) = recorded.buckets();
        assert!((sum - 60.000_050_003).abs() < 1e-9, "{sum}");
        assert_eq!((counts[0], counts[1], counts[11]), (2, 3, 1));
    }
}
