//! Joins of two keyed streams, in event time.
//!
//! Invariant: the items of a key are processed in the order of their times, those of the right stream first
//! where times are equal, once the watermark has passed them. So the pairs depend on the times alone, and not
//! on which stream was read faster. Without times items are processed in the order of arrival.
//!
//! ```
//! use millstream_flow::join::Join;
//! use millstream_flow::{EventTime, Flow, Options, testing};
//!
//! let flow = Flow::new("prices");
//! let out = testing::Collected::new();
//! let prices = flow.source("prices", testing::items([(0i64, 10), (5, 20)]));
//! let orders = flow.source("orders", testing::items([(3i64, "a"), (7, "b")]));
//! let prices = prices.event_time(|price| price.0, EventTime::default()).key_by(|_| 0u8);
//! let orders = orders.event_time(|order| order.0, EventTime::default()).key_by(|_| 0u8);
//! let joined = orders.join("priced", &prices, Join::lookup());
//! joined.results.values()
//!     .filter_map(|pair| Some((pair.value.0?.1, pair.value.1?.1)))
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("a", 10), ("b", 20)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

mod all;
mod saved;
mod side;
mod side_codec;
mod windowed;

use std::time::Duration;

use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::describe::graph::Mistake;
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::{KeyedStream, Untimed};
use crate::operators::window::{ByKey, Outcome, PerKey};
use crate::state::backlog::{Backlog, Chain};
use crate::state::{KeyLogic, KeyedStep, Moment, Outputs};
use crate::time::{NEVER, Timed, nanos};
pub(crate) use all::read_values;
pub use all::{Insert, JoinAll, Others, Row};
use saved::JoinStateCodec;
pub use side::{JoinKind, JoinState, Side};
use side::{Retained, wait};
use side_codec::{both_sides, both_untimed};
pub use windowed::{Sides, WindowPairs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partners {
    /// The latest item of the other stream.
    Latest,
    /// The latest item of the right stream; items of the right stream produce no output themselves.
    Lookup,
    /// For an item of the left stream all of the right one that are at most so much earlier, or later.
    Between { before: i64, after: i64 },
}

/// The definition of a join of two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    partners: Partners,
    how: JoinKind,
    ttl: Option<i64>,
    per_key: Option<PerKey>,
}

impl Join {
    fn of(partners: Partners, how: JoinKind) -> Self {
        Join {
            partners,
            how,
            ttl: None,
            per_key: None,
        }
    }

    /// Joins each item, of either stream, with the latest one of the other.
    #[must_use]
    pub fn latest() -> Self {
        Join::of(Partners::Latest, JoinKind::Inner)
    }

    /// Joins each item of the left stream with the latest one of the right, or with nothing. The right stream
    /// is a table that changes slowly.
    #[must_use]
    pub fn lookup() -> Self {
        Join::of(Partners::Lookup, JoinKind::Left)
    }

    /// Joins each item with all items of the other stream that are at most `time` earlier or later.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Join::between(time, time)
    }

    /// Joins each item of the left stream with all items of the right one that are at most `before` earlier, or at
    /// most `after` later: clicks with the orders of the next hour, `Join::between(Duration::ZERO, hour)`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::join::Join;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("bought"), testing::Collected::new());
    /// let [clicks, orders] = [("clicks", [10, 50]), ("orders", [8, 14])].map(|(name, times)| {
    ///     let items = flow.source(name, testing::items(times));
    ///     items.event_time(|time: &i64| *time, EventTime::default()).key_by(|_| "all")
    /// });
    /// let soon = Join::between(Duration::ZERO, Duration::from_nanos(5));
    /// clicks.join("bought", &orders, soon).results.values().map(|pair| pair.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(Some(10), Some(14))]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn between(before: Duration, after: Duration) -> Self {
        let before = nanos(before);
        let after = nanos(after);
        Join::of(Partners::Between { before, after }, JoinKind::Inner)
    }

    /// Sets which items without a partner are emitted.
    #[must_use]
    pub fn how(mut self, how: JoinKind) -> Self {
        self.how = how;
        self
    }

    /// Removes the latest items of a key when event time has advanced by this since its last one.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(nanos(ttl));
        self
    }

    /// Uses a watermark for each key: an item is late only if its own key has had one, of either stream, that
    /// is more than `lateness` later, and it is processed once its key has had one that much later.
    ///
    /// `patience`: the watermark of a silent key follows that of the partitions with this lag. Without it,
    /// items that wait for their turn or for a partner wait until the key has later items or the input ends,
    /// and `ttl` counts from there. See [`Window::per_key`](crate::Window::per_key).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::join::Join;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("slow device"), testing::Collected::new());
    /// let timed = |name, items: [(&'static str, i64); 3]| {
    ///     let items = flow.source(name, testing::items(items));
    ///     items.event_time(|item| item.1, EventTime::default()).key_by(|item| item.0)
    /// };
    /// // The items of "b" have earlier times than those of "a" before them, and are not late.
    /// let left = timed("left", [("a", 50), ("b", 3), ("b", 9)]);
    /// let right = timed("right", [("a", 51), ("b", 4), ("b", 20)]);
    /// let near = Join::within(Duration::from_nanos(2)).per_key(Duration::from_nanos(30), None);
    /// left.join("near", &right, near).results.values()
    ///     .filter_map(|pair| Some((pair.value.0?.1, pair.value.1?.1)))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// let mut pairs = out.take();
    /// pairs.sort();
    /// assert_eq!(pairs, [(3, 4), (50, 51)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn per_key(mut self, lateness: Duration, patience: Option<Duration>) -> Self {
        self.per_key = Some(PerKey::new(lateness, patience));
        self
    }

    /// Returns the definition of the watermark of each key, if there is one.
    #[must_use]
    pub fn by_key(&self) -> Option<PerKey> {
        self.per_key
    }

    /// Describes what the state of such a join depends on.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn describe(&self) -> String {
        let partners = match self.partners {
            Partners::Latest => "latest",
            Partners::Lookup => "lookup",
            Partners::Between { .. } => "within a time",
        };
        match self.per_key {
            Some(_) => format!("{partners}, watermark by key"),
            None => partners.to_owned(),
        }
    }
}

/// Makes the output of two partners, of which one may be missing.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Pair<L, R>: 'static {
    /// The type of the outputs.
    type Out: 'static;
    /// The type of the errors.
    type Error;
    /// Makes an output.
    ///
    /// # Errors
    /// The error of the function.
    fn pair(&self, left: Option<&L>, right: Option<&R>) -> Result<Self::Out, Self::Error>;
}

/// Copies both partners.
struct Both;

impl<L: Data, R: Data> Pair<L, R> for Both {
    type Out = (Option<L>, Option<R>);
    type Error = Cause;
    fn pair(&self, left: Option<&L>, right: Option<&R>) -> Result<Self::Out, Cause> {
        Ok((left.cloned(), right.cloned()))
    }
}

/// A join as the logic of a key.
#[doc(hidden)] // For the other crates of Millstream.
pub struct JoinLogic<L, R, P> {
    join: Join,
    timed: bool,
    pair: P,
    types: std::marker::PhantomData<fn(L, R)>,
}

impl<L, R, P> JoinLogic<L, R, P> {
    /// Creates the logic of a join; items without times are processed in the order of arrival.
    pub fn new(join: Join, timed: bool, pair: P) -> Self {
        JoinLogic {
            join,
            timed,
            pair,
            types: std::marker::PhantomData,
        }
    }
}

impl<L: 'static, R: 'static, P: Pair<L, R>> JoinLogic<L, R, P> {
    /// Processes an item.
    fn process<K>(
        &self,
        key: &K,
        held: &mut JoinState<L, R>,
        item: Timed<Side<L, R>>,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let time = item.time;
        let stamp = (item.time, item.watermark);
        if let Some(ttl) = self.join.ttl {
            held.expires = time.saturating_add(ttl);
        }
        let single = !matches!(self.join.partners, Partners::Between { .. });
        let lookup = self.join.partners == Partners::Lookup;
        match item.value {
            Side::Left(value) => {
                let mut alone = true;
                for right in held.right.iter_mut() {
                    (alone, right.alone) = (false, false);
                    emit(
                        key,
                        stamp,
                        self.pair.pair(Some(&value), Some(&right.value))?,
                        out,
                    );
                }
                if alone && single && self.join.how != JoinKind::Inner {
                    emit(key, stamp, self.pair.pair(Some(&value), None)?, out);
                }
                if !lookup {
                    keep(&mut held.left, Retained::new(time, alone, value), single);
                }
            }
            Side::Right(value) => {
                let mut alone = true;
                for left in held.left.iter_mut() {
                    (alone, left.alone) = (false, false);
                    emit(
                        key,
                        stamp,
                        self.pair.pair(Some(&left.value), Some(&value))?,
                        out,
                    );
                }
                if alone && single && self.join.how == JoinKind::Full && !lookup {
                    emit(key, stamp, self.pair.pair(None, Some(&value))?, out);
                }
                keep(&mut held.right, Retained::new(time, alone, value), single);
            }
        }
        Ok(())
    }

    /// Returns the next moment at which an item is too old to find partners, and whether it is a left one.
    fn next_retirement(&self, held: &JoinState<L, R>) -> Option<(i64, bool)> {
        let Partners::Between { before, after } = self.join.partners else {
            return None;
        };
        let last = |kept: Option<i64>, more: i64| kept.map(|time| time.saturating_add(more));
        let left = last(held.left.front().map(|kept| kept.time), after);
        let right = last(held.right.front().map(|kept| kept.time), before);
        match (left, right) {
            (Some(left), Some(right)) if right <= left => Some((right, false)),
            (Some(left), _) => Some((left, true)),
            (None, right) => Some((right?, false)),
        }
    }

    /// Removes an item that can find no partner any more.
    fn retire<K>(
        &self,
        key: &K,
        held: &mut JoinState<L, R>,
        (at, left): (i64, bool),
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let alone = if left {
            let kept = held.left.pop_front().filter(|kept| kept.alone);
            kept.filter(|_| self.join.how != JoinKind::Inner)
                .map(|kept| self.pair.pair(Some(&kept.value), None))
        } else {
            let kept = held.right.pop_front().filter(|kept| kept.alone);
            kept.filter(|_| self.join.how == JoinKind::Full)
                .map(|kept| self.pair.pair(None, Some(&kept.value)))
        };
        if let Some(output) = alone.transpose()? {
            emit(key, (at, at), output, out);
        }
        Ok(())
    }
}

fn emit<K, O, I>(
    key: &K,
    (time, watermark): (i64, i64),
    value: O,
    out: &mut impl Outputs<K, O, I>,
) {
    let output = Timed {
        time,
        watermark,
        value,
    };
    out.result(key, output);
}

fn keep<T>(all: &mut Backlog<Retained<T>>, item: Retained<T>, single: bool) {
    if single {
        all.clear();
    }
    all.push_back(item);
}

impl<K: 'static, L: 'static, R: 'static, P: Pair<L, R>> KeyLogic<K> for JoinLogic<L, R, P> {
    type State = JoinState<L, R>;
    type In = Side<L, R>;
    type Out = P::Out;
    type Error = P::Error;

    fn open(&mut self, _: &K) -> Result<JoinState<L, R>, P::Error> {
        Ok(JoinState {
            waiting: Backlog::default(),
            left: Backlog::default(),
            right: Backlog::default(),
            expires: NEVER,
            chain: Chain::default(),
        })
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut JoinState<L, R>,
        item: Timed<Side<L, R>>,
        at: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        if !self.timed {
            return self.process(key, held, item, out);
        }
        if item.time < item.watermark.max(at.event) {
            out.late(key, item);
            return Ok(());
        }
        // When an item is processed, event time has just reached it. The watermark at its arrival may depend on
        // the other stream.
        let watermark = item.time;
        wait(&mut held.waiting, Timed { watermark, ..item });
        Ok(())
    }

    fn on_due(
        &mut self,
        key: &K,
        held: &mut JoinState<L, R>,
        until: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        // After a watermark no item before it arrives; an item at it may.
        loop {
            let turn = held.waiting.front().map_or(NEVER, |item| item.time);
            let retirement = self.next_retirement(held);
            let retires = retirement.map_or(NEVER, |(at, _)| at);
            // Before an item or the removal of an item at this time, the key may have expired.
            if held.expires < until.event && held.expires < turn {
                held.left.clear();
                held.right.clear();
                held.expires = NEVER;
            } else if turn < until.event && turn <= retires {
                if let Some(mut item) = held.waiting.pop_front() {
                    item.watermark = item.time;
                    self.process(key, held, item, out)?;
                }
            } else if retires < until.event
                && let Some(retirement) = retirement
            {
                self.retire(key, held, retirement, out)?;
            } else {
                return Ok(());
            }
        }
    }

    fn on_end(
        &mut self,
        key: &K,
        held: &mut JoinState<L, R>,
        at: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let until = Moment { event: NEVER, ..at };
        self.on_due(key, held, until, out)?;
        held.left.clear();
        held.right.clear();
        Ok(())
    }

    fn next(&self, held: &JoinState<L, R>) -> Moment {
        let turn = held.waiting.front().map_or(NEVER, |item| item.time);
        let retirement = self.next_retirement(held).map_or(NEVER, |(at, _)| at);
        let first = turn.min(retirement).min(held.expires);
        Moment {
            event: first.saturating_add(1),
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, held: &JoinState<L, R>) -> bool {
        held.waiting.is_empty() && held.left.is_empty() && held.right.is_empty()
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<JoinState<L, R>>, Cause> {
        Ok(Box::new(JoinStateCodec {
            left: codecs.get()?,
            right: codecs.get()?,
        }))
    }
}

/// The outputs of a join: pairs, and the items that were too late.
pub type Pairs<K, L, R> = Outcome<K, Side<L, R>, (Option<L>, Option<R>)>;

impl<K: Key, L: Data> Untimed<K, L> {
    /// Joins this stream, the left one, with `right`: pairs of items of one key, processed in the order of their
    /// arrival, so that two runs may differ.
    ///
    /// `join` is [`Join::latest`] or [`Join::lookup`]. The latest items of each key are kept for ever. On streams with
    /// times the verb of this name is [`KeyedStream::join`], which follows event time. `name` is the name of the step
    /// in errors, metrics and saved state. With recovery the types of both streams are [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty,
    /// [`FlowError::ForeignStream`](crate::FlowError::ForeignStream) when `right` belongs to another flow, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) for a join that needs times: [`Join::within`], [`Join::between`],
    /// [`Join::ttl`] and [`Join::per_key`].
    ///
    /// ```
    /// use millstream_flow::{Flow, Join, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("stock"), testing::Collected::new());
    /// let stock = flow.source("stock", testing::items([("tea", 3)])).into_keyed();
    /// let orders = flow.source("orders", testing::items([("tea", "order 1")])).into_keyed();
    /// orders.join("both", &stock, Join::latest()).items().sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("tea", (Some("order 1"), Some(3)))]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn join<R: Data>(
        &self,
        name: &str,
        right: &KeyedStream<K, R>,
        join: Join,
    ) -> KeyedStream<K, (Option<L>, Option<R>)> {
        let both = both_untimed(&self.keyed(), right);
        if matches!(join.partners, Partners::Between { .. })
            || join.ttl.is_some()
            || join.per_key.is_some()
        {
            both.mistake(Mistake::Usage(
                "a join without times is Join::latest or Join::lookup, without ttl and per_key: call event_time before key_by",
            ));
        }
        let called = name.to_owned();
        let joined = both.keep("join", name, move || {
            KeyedStep::new(&called, false, JoinLogic::new(join, false, Both))
        });
        let joined = joined.in_order().detailed(&join.describe());
        joined.joins(vec![self.keyed().nodes(), right.nodes()])
    }
}

impl<K: Key, L: Data> KeyedStream<K, Timed<L>> {
    /// Joins this stream, the left one, with `right`: pairs of items of one key. `join` says which items are partners.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. Items that are late go to `late`.
    /// With recovery the types of both streams are [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::ForeignStream`](crate::FlowError::ForeignStream) when `right` belongs to another flow.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::join::Join;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("pairs"), testing::Collected::new());
    /// let [left, right] = [("left", [10, 50]), ("right", [12, 90])].map(|(name, times)| {
    ///     let items = flow.source(name, testing::items(times));
    ///     items.event_time(|time: &i64| *time, EventTime::default()).key_by(|_| "all")
    /// });
    /// let near = Join::within(Duration::from_nanos(5));
    /// left.join("near", &right, near).results.values().map(|pair| pair.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(Some(10), Some(12))]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn join<R: Data>(
        &self,
        name: &str,
        right: &KeyedStream<K, Timed<R>>,
        join: Join,
    ) -> Pairs<K, L, R> {
        let both = both_sides(self, right);
        let called = name.to_owned();
        let logic = move || JoinLogic::new(join, true, Both);
        let (results, late) = match join.per_key {
            None => both.keep_timed(("join", true), name, move || {
                KeyedStep::new(&called, false, logic())
            }),
            Some(how) => both.keep_timed(("join", true), name, move || {
                KeyedStep::new(&called, false, ByKey::new(logic(), how))
            }),
        };
        let results = results
            .detailed(&join.describe())
            .joins(vec![self.nodes(), right.nodes()]);
        Outcome { results, late }
    }
}
