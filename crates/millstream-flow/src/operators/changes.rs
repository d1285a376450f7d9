//! `changes`: the values that differ from the one before them of their key.
//!
//! Invariant: no value that passes equals the one of its key that passed before it, while the key is remembered.
//!
//! ```
//! use millstream_flow::{Flow, Options, testing};
//!
//! let (flow, out) = (Flow::new("doors"), testing::Collected::new());
//! flow.source("doors", testing::items([("front", "open"), ("back", "open"), ("front", "open"), ("front", "shut")]))
//!     .into_keyed()
//!     .changes(None)
//!     .items()
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("front", "open"), ("back", "open"), ("front", "shut")]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::time::Duration;

use crate::batch::Data;
use crate::key::Key;
use crate::operators::keyed::{KeyedStream, Untimed};
use crate::operators::limits::Passing;
use crate::operators::misplaced::needs_keys;
use crate::time::Timed;

/// Passes values that differ from the last one.
#[derive(Clone, Copy)]
struct Differing;

impl<V: Data + PartialEq> Passing<V> for Differing {
    type State = Option<V>;

    fn passes(&self, last: &mut Option<V>, value: &V, _: i64) -> bool {
        let differs = last.as_ref() != Some(value);
        if differs {
            *last = Some(value.clone());
        }
        differs
    }
}

needs_keys!(changes<>(Option<Duration>););

impl<K: Key, V: Data + PartialEq> Untimed<K, V> {
    /// Passes on the values that differ from the one before them of their key, and drops the others.
    ///
    /// The first value of a key passes. A key that has had no value for `ttl` of processing time, dropped ones
    /// included, is removed, so that its next value passes; without `ttl` no key is, and the state grows with each. On
    /// a stream with times the verb of this name is [`KeyedStream::changes`], which follows event time. The step is
    /// named `changes`; a second one in a flow needs a name by [`named`](KeyedStream::named). With recovery the type of
    /// the values is [announced](crate::Flow::saves).
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("changes"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 1), ("a", 1), ("a", 2)]))
    ///     .into_keyed()
    ///     .changes(None)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 1), ("a", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn changes(&self, ttl: Option<Duration>) -> KeyedStream<K, V> {
        self.passing("changes", Differing, ttl)
    }
}

impl<K: Key, V: Data + PartialEq> KeyedStream<K, Timed<V>> {
    /// Passes on the values that differ from the one before them of their key, and drops the others.
    ///
    /// Values are compared in the order of arrival, without their times. A key is removed once event time is `ttl`
    /// later than its latest value, dropped ones included, so that its next value passes; without `ttl` no key is, and
    /// the state grows with each. The step is named `changes`; a second one in a flow needs a name by
    /// [`named`](Self::named). With recovery the type of the values is
    /// [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("levels"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 10), ("a", 12), ("a", 25), ("a", 99)]))
    ///     .event_time(|item: &(&str, i64)| item.1, EventTime::default())
    ///     .key_by(|item| item.0)
    ///     .map(|item| item.map(|(_, level)| level / 20))
    ///     .changes(Some(Duration::from_nanos(50)))
    ///     .map(|level| level.value)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 0), ("a", 1), ("a", 4)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn changes(&self, ttl: Option<Duration>) -> KeyedStream<K, Timed<V>> {
        self.passing_in_time("changes", Differing, ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::{Collected, Trial, items};
    use crate::{EventTime, Flow, Options};

    /// A key, a time, a level.
    type Event = (u32, i64, i64);

    const LIFE: i64 = 30;

    /// Events in the order of time, with gaps; numbers by Knuth's generator (MMIX).
    fn events(mut seed: u64, count: usize) -> Vec<Event> {
        let mut below = |limit: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % limit) as i64
        };
        let mut now = 0;
        let mut event = || {
            now += below(3) + if below(20) == 0 { 40 } else { 0 };
            (below(5) as u32, now, below(3))
        };
        (0..count).map(|_| event()).collect()
    }

    /// The times of the values that pass, by key.
    fn model(events: &[Event], life: i64) -> BTreeMap<u32, Vec<i64>> {
        let mut last: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
        let mut passed: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
        for &(key, time, level) in events {
            match last.insert(key, (time, level)) {
                Some((before, same)) if same == level && time < before.saturating_add(life) => {}
                _ => passed.entry(key).or_default().push(time),
            }
        }
        passed
    }

    fn timed(flow: &Flow, events: Vec<Event>, batch: usize) -> KeyedStream<u32, Timed<i64>> {
        let source = flow.source("in", items(events).batch_size(batch));
        let timed = source.event_time(|event: &Event| event.1, EventTime::default());
        timed
            .key_by(|event| event.0)
            .map(|event| event.map(|event| event.2))
    }

    #[test]
    fn what_passes_is_what_a_plain_loop_passes() {
        for seed in 0..5 {
            let events = events(seed, 1000);
            for (life, ttl) in [(LIFE, Some(Duration::from_nanos(30))), (i64::MAX, None)] {
                for (workers, batch) in [(1, 1), (2, 7), (3, 10_000)] {
                    let flow = Flow::new("changes");
                    let out = Collected::new();
                    let changes = timed(&flow, events.clone(), batch).changes(ttl);
                    changes
                        .map(|level| level.time)
                        .items()
                        .sink("out", out.sink());
                    flow.run(Options::workers(workers)).expect("it runs");
                    let mut passed: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
                    for (key, time) in out.take() {
                        passed.entry(key).or_default().push(time);
                    }
                    assert_eq!(
                        passed,
                        model(&events, life),
                        "seed {seed}, {workers} workers, batches of {batch}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_crash_at_every_point_does_not_change_what_passes() {
        let flow = Flow::new("changes");
        flow.saves::<Event>();
        let source = timed(&flow, Vec::new(), 1);
        let out = Collected::new();
        let texts = source.changes(Some(Duration::from_nanos(30))).values();
        texts.map(|level| level.value).sink("out", out.sink());
        for workers in [1, 3] {
            let given = items(events(3, 30)).batch_size(4);
            let trial = Trial::new(&flow)
                .output::<i64>("out")
                .input("in", given)
                .workers(workers);
            assert!(trial.crash_everywhere().expect("it runs") > 6);
        }
    }
}
