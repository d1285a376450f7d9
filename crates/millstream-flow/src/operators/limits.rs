//! Verbs that drop values of a key: `dedupe` and `throttle`.
//!
//! Invariant: of a key, at most so many values pass in a period; the others are counted, and dropped. The state of a key ends with its
//! time to live, so that it does not grow with the number of keys.
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
use crate::state::{
    InTurn, KeyLogic, KeyedStep, Moment, Outputs, Ttl, WithTimers, WithTimersCodec,
};
use crate::time::{Timed, nanos};

/// How many values of a key pass.
#[derive(Clone, Copy)]
struct Limit {
    most: u64,
    /// The length of a period. Without it the first one ends with the state of the key.
    every: Option<i64>,
    ttl: Option<i64>,
}

impl Limit {
    fn first(ttl: Option<Duration>) -> Self {
        Limit {
            most: 1,
            every: None,
            ttl: ttl.map(nanos),
        }
    }

    fn per_period(most: u64, every: Duration) -> Self {
        let every = Some(nanos(every));
        Limit {
            most,
            every,
            ttl: every,
        }
    }
}

/// A period of a key: its start, and how many values have passed in it. [`Codecs`] know it.
type Period = (i64, u64);

/// A limit as the logic of a key.
struct Limiting<V> {
    limit: Limit,
    /// Whether the items have times.
    timed: bool,
    types: PhantomData<fn(V)>,
}

impl<V> Limiting<V> {
    fn new(limit: Limit, timed: bool) -> Self {
        Limiting {
            limit,
            timed,
            types: PhantomData,
        }
    }
}

impl<K: 'static, V: 'static> KeyLogic<K> for Limiting<V> {
    type State = WithTimers<Period>;
    type In = V;
    type Out = V;
    type Error = Cause;

    fn open(&mut self, _: &K) -> Result<WithTimers<Period>, Cause> {
        Ok(WithTimers::new((0, 0)))
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut WithTimers<Period>,
        item: Timed<V>,
        at: Moment,
        out: &mut impl Outputs<K, V, V>,
    ) -> Result<(), Cause> {
        let (now, ttl): (i64, fn(i64) -> Ttl) = match self.timed {
            true => (item.time, Ttl::Event),
            false => (at.processing, Ttl::Processing),
        };
        held.touch(self.limit.ttl.map(ttl), item.time, at.processing);
        let (begun, passed) = &mut held.state;
        let ended = |every: i64| now >= begun.saturating_add(every);
        // Each period has a value: the first one begins it.
        if *passed == 0 || self.limit.every.is_some_and(ended) {
            (*begun, *passed) = (now, 0);
        }
        if *passed < self.limit.most {
            *passed += 1;
            out.result(key, item);
        }
        Ok(())
    }

    fn on_due(
        &mut self,
        _: &K,
        held: &mut WithTimers<Period>,
        until: Moment,
        _: &mut impl Outputs<K, V, V>,
    ) -> Result<(), Cause> {
        // There are no timers: what is due is the end of life.
        held.take_due(until);
        Ok(())
    }

    fn on_end(
        &mut self,
        _: &K,
        held: &mut WithTimers<Period>,
        _: Moment,
        _: &mut impl Outputs<K, V, V>,
    ) -> Result<(), Cause> {
        held.discarded = true;
        Ok(())
    }

    fn next(&self, held: &WithTimers<Period>) -> Moment {
        held.next()
    }

    fn is_empty(&self, held: &WithTimers<Period>) -> bool {
        held.discarded
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<WithTimers<Period>>, Cause> {
        Ok(Box::new(WithTimersCodec(codecs.get::<Period>()?)))
    }
}

/// The mistake of a limit that no value would pass.
const NONE_PASSES: &str = "throttle passes 1 value or more";

impl<K: Key, V: Data> Untimed<K, V> {
    fn limited(&self, kind: &'static str, limit: Limit) -> KeyedStream<K, V> {
        let keyed = self.keyed();
        if limit.most == 0 {
            keyed.mistake(Mistake::Usage(NONE_PASSES));
        }
        keyed.keep(kind, kind, move || {
            KeyedStep::new(kind, true, Limiting::new(limit, false))
        })
    }

    /// Passes on the first value of each key, and drops the others.
    ///
    /// A key that has had no value for `ttl` of processing time, dropped ones included, is removed, so that its next value passes; without
    /// `ttl` no key is, and the state grows with each. On a stream with times the verb of this name is [`KeyedStream::dedupe`], which
    /// follows event time. The step is named `dedupe`; a second one in a flow needs a name by [`named`](KeyedStream::named). The difference of `items_in` and
    /// `items_out` in its metrics is the number of dropped values.
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
        self.limited("dedupe", Limit::first(ttl))
    }

    /// Passes on at most `most` values of each key in a period, and drops the others.
    ///
    /// A period of a key begins with a value that finds none, and lasts `every` of processing time. On a stream with times the verb of this
    /// name is [`KeyedStream::throttle`], which follows event time. The step is named `throttle`; a second one in a flow needs a name by
    /// [`named`](KeyedStream::named). The difference of `items_in` and `items_out` in its metrics is the number of dropped values.
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
        self.limited("throttle", Limit::per_period(most, every))
    }
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    fn limited_in_time(&self, kind: &'static str, limit: Limit) -> KeyedStream<K, Timed<V>> {
        if limit.most == 0 {
            self.mistake(Mistake::Usage(NONE_PASSES));
        }
        let (passed, _) = self.keep_timed((kind, false), kind, move || {
            let logic = Limiting::new(limit, true);
            KeyedStep::new(kind, true, InTurn::after_timers(logic, V::clone))
        });
        passed
    }

    /// Passes on the first value of each key, and drops the others.
    ///
    /// A key is removed once event time is `ttl` later than its latest value, dropped ones included, so that its next value passes; without
    /// `ttl` no key is, and the state grows with each. The step is named `dedupe`; a second one in a flow needs a name by
    /// [`named`](Self::named). The difference of `items_in` and `items_out` in its metrics is the number of dropped values. With recovery
    /// the type of the values is [announced](crate::Flow::saves).
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
        self.limited_in_time("dedupe", Limit::first(ttl))
    }

    /// Passes on at most `most` values of each key in a period, and drops the others.
    ///
    /// A period of a key begins with a value that finds none, and lasts `every` of event time. A value that is earlier than the start of the
    /// period of its key counts in it. The step is named `throttle`; a second one in a flow needs a name by [`named`](Self::named). The
    /// difference of `items_in` and `items_out` in its metrics is the number of dropped values. With recovery the type of the values is
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
        self.limited_in_time("throttle", Limit::per_period(most, every))
    }
}
