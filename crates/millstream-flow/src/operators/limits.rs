//! Verbs that drop values of a key: `dedupe` and `throttle`.
//!
//! Invariant: of a key, at most so many values pass in a period; the others are counted, and dropped. The state of a
//! key ends with its time to live, so that it does not grow with the number of keys.
//!
//! ```
//! use std::time::Duration;
//! use millstream_flow::{EventTime, Flow, Options, testing};
//!
//! let (flow, out) = (Flow::new("alarms"), testing::Collected::new());
//! flow.source("alarms", testing::items([("fire", 0i64), ("fire", 1), ("flood", 2), ("fire", 70)]))
//!     .event_time(|alarm| alarm.1, EventTime::default())
//!     .key_by(|alarm| alarm.0)
//!     .throttle(1, Duration::from_nanos(60))
//!     .values()
//!     .map(|alarm| alarm.value)
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("fire", 0), ("flood", 2), ("fire", 70)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::marker::PhantomData;
use std::time::Duration;

use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::describe::graph::Mistake;
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::{KeyedStream, Untimed};
use crate::operators::misplaced::needs_keys;
use crate::state::{
    InTurn, KeyLogic, KeyedStep, Moment, Outputs, Ttl, WithTimers, WithTimersCodec,
};
use crate::time::{Timed, nanos};

/// Decides which values of a key pass; the others are dropped.
pub trait Passing<V>: 'static {
    /// What is remembered of a key. It has a codec.
    type State: Default + 'static;
    /// Whether a value passes at the time `now`: that of the value, or processing time.
    fn passes(&self, state: &mut Self::State, value: &V, now: i64) -> bool;
}

/// How many values of a key pass.
#[derive(Clone, Copy)]
pub struct Limit {
    /// How many pass in a period.
    pub most: u64,
    /// The length of a period, nanoseconds. Without it the first one ends with the state of the key.
    pub every: Option<i64>,
}

/// A period of a key: its start, and how many values have passed in it. [`Codecs`] know it.
type Period = (i64, u64);

impl<V> Passing<V> for Limit {
    type State = Period;

    fn passes(&self, (begun, passed): &mut Period, _: &V, now: i64) -> bool {
        let ended = |every: i64| now >= begun.saturating_add(every);
        // Each period has a value: the first one begins it.
        if *passed == 0 || self.every.is_some_and(ended) {
            (*begun, *passed) = (now, 0);
        }
        let passes = *passed < self.most;
        *passed += u64::from(passes);
        passes
    }
}

/// A rule as the logic of a key.
pub struct Limiting<V, R, E> {
    rule: R,
    ttl: Option<i64>,
    /// Whether the items have times.
    timed: bool,
    types: PhantomData<fn(V) -> E>,
}

impl<V, R, E> Limiting<V, R, E> {
    /// Creates the logic; a key that has had no value for `ttl` nanoseconds, dropped ones included, is removed.
    pub fn new(rule: R, ttl: Option<i64>, timed: bool) -> Self {
        Limiting {
            rule,
            ttl,
            timed,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static, R: Passing<V>, E: 'static> KeyLogic<K> for Limiting<V, R, E> {
    type State = WithTimers<R::State>;
    type In = V;
    type Out = V;
    type Error = E;

    fn open(&mut self, _: &K) -> Result<Self::State, E> {
        Ok(WithTimers::new(R::State::default()))
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut Self::State,
        item: Timed<V>,
        at: Moment,
        out: &mut impl Outputs<K, V, V>,
    ) -> Result<(), E> {
        let (now, ttl): (i64, fn(i64) -> Ttl) = if self.timed {
            (item.time, Ttl::Event)
        } else {
            (at.processing, Ttl::Processing)
        };
        held.touch(self.ttl.map(ttl), item.time, at.processing);
        if self.rule.passes(&mut held.state, &item.value, now) {
            out.result(key, item);
        }
        Ok(())
    }

    fn on_due(
        &mut self,
        _: &K,
        held: &mut Self::State,
        until: Moment,
        _: &mut impl Outputs<K, V, V>,
    ) -> Result<(), E> {
        // There are no timers: what is due is the end of life.
        held.take_due(until);
        Ok(())
    }

    fn on_end(
        &mut self,
        _: &K,
        held: &mut Self::State,
        _: Moment,
        _: &mut impl Outputs<K, V, V>,
    ) -> Result<(), E> {
        held.discarded = true;
        Ok(())
    }

    fn next(&self, held: &Self::State) -> Moment {
        held.next()
    }

    fn is_empty(&self, held: &Self::State) -> bool {
        held.discarded
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(WithTimersCodec(codecs.get::<R::State>()?)))
    }
}

/// The limit of `dedupe`.
const FIRST: Limit = Limit {
    most: 1,
    every: None,
};

/// The limit of `throttle`.
fn per_period<K: Key, V: Data>(stream: &KeyedStream<K, V>, most: u64, every: Duration) -> Limit {
    if most == 0 {
        stream.mistake(Mistake::Usage("throttle passes 1 value or more"));
    }
    Limit {
        most,
        every: Some(nanos(every)),
    }
}

needs_keys!(
    dedupe<>(Option<Duration>);
    throttle<>(u64, Duration);
);

impl<K: Key, V: Data> Untimed<K, V> {
    /// The values that pass by a rule. Their order makes a difference.
    pub(super) fn passing<R: Passing<V> + Clone + Send + Sync>(
        &self,
        kind: &'static str,
        rule: R,
        ttl: Option<Duration>,
    ) -> KeyedStream<K, V> {
        let ttl = ttl.map(nanos);
        let made = self.keyed().keep(kind, kind, move || {
            let logic = Limiting::<_, _, Cause>::new(rule.clone(), ttl, false);
            KeyedStep::new(kind, true, logic)
        });
        made.in_order()
    }

    /// Passes on the first value of each key, and drops the others.
    ///
    /// A key that has had no value for `ttl` of processing time, dropped ones included, is removed, so that its next
    /// value passes; without `ttl` no key is, and the state grows with each. On a stream with times the verb of this
    /// name is [`KeyedStream::dedupe`], which follows event time. The step is named `dedupe`; a second one in a flow
    /// needs a name by [`named`](KeyedStream::named). The difference of `items_in` and `items_out` in its metrics is
    /// the number of dropped values.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("once"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .into_keyed()
    ///     .dedupe(None)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn dedupe(&self, ttl: Option<Duration>) -> KeyedStream<K, V> {
        self.passing("dedupe", FIRST, ttl)
    }

    /// Passes on at most `most` values of each key in a period, and drops the others.
    ///
    /// A period of a key begins with a value that finds none, and lasts `every` of processing time. On a stream with
    /// times the verb of this name is [`KeyedStream::throttle`], which follows event time. The step is named
    /// `throttle`; a second one in a flow needs a name by [`named`](KeyedStream::named). The difference of `items_in`
    /// and `items_out` in its metrics is the number of dropped values.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::Usage`](crate::FlowError::Usage) when `most` is 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("few"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3), ("a", 4)]))
    ///     .into_keyed()
    ///     .throttle(2, Duration::from_secs(3600))
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn throttle(&self, most: u64, every: Duration) -> KeyedStream<K, V> {
        let limit = per_period(&self.keyed(), most, every);
        self.passing("throttle", limit, Some(every))
    }
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// The values that pass by a rule, which follows event time.
    pub(super) fn passing_in_time<R: Passing<V> + Clone + Send + Sync>(
        &self,
        kind: &'static str,
        rule: R,
        ttl: Option<Duration>,
    ) -> KeyedStream<K, Timed<V>> {
        let ttl = ttl.map(nanos);
        let (passed, _) = self.keep_timed((kind, false), kind, move || {
            let logic = Limiting::new(rule.clone(), ttl, true);
            KeyedStep::new(kind, true, InTurn::after_timers(logic, V::clone))
        });
        passed
    }

    /// Passes on the first value of each key, and drops the others.
    ///
    /// A key is removed once event time is `ttl` later than its latest value, dropped ones included, so that its next
    /// value passes; without `ttl` no key is, and the state grows with each. The step is named `dedupe`; a second one
    /// in a flow needs a name by [`named`](Self::named). The difference of `items_in` and `items_out` in its metrics is
    /// the number of dropped values. With recovery the type of the values is [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("once"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3), ("a", 99)]))
    ///     .event_time(|item: &(&str, i64)| item.1, EventTime::default())
    ///     .into_keyed()
    ///     .dedupe(Some(Duration::from_nanos(50)))
    ///     .map(|item| item.value)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 99)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn dedupe(&self, ttl: Option<Duration>) -> KeyedStream<K, Timed<V>> {
        self.passing_in_time("dedupe", FIRST, ttl)
    }

    /// Passes on at most `most` values of each key in a period, and drops the others.
    ///
    /// A period of a key begins with a value that finds none, and lasts `every` of event time. A value that is earlier
    /// than the start of the period of its key counts in it. The step is named `throttle`; a second one in a flow needs
    /// a name by [`named`](Self::named). The difference of `items_in` and `items_out` in its metrics is the number of
    /// dropped values. With recovery the type of the values is
    /// [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::Usage`](crate::FlowError::Usage) when `most` is 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("few"), testing::Collected::new());
    /// flow.source("in", testing::items([0, 20, 59, 60, 90]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all")
    ///     .throttle(1, Duration::from_nanos(60))
    ///     .values()
    ///     .map(|time| time.value)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [0, 60]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn throttle(&self, most: u64, every: Duration) -> KeyedStream<K, Timed<V>> {
        let limit = per_period(self, most, every);
        self.passing_in_time("throttle", limit, Some(every))
    }
}
