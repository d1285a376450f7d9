//! Joins of two keyed streams, in event time.
//!
//! Invariant: the items of a key take their turn in the order of their times, those of the right stream
//! first where times are equal, once the watermark has passed them. So what is joined with what depends
//! on the times alone, and not on which stream was read faster. Where there are no times (in Python) the
//! items take their turn as they come.
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

use std::collections::VecDeque;
use std::time::Duration;

use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::state::{KeyLogic, KeyedStep, Moment, Outputs};
use crate::time::window::{ByKey, Outcome, PerKey};
use crate::time::{NEVER, Timed, nanos};
pub use all::{Insert, JoinAll, Others, Row};
use saved::JoiningCodec;
use side::Retained;
pub use side::{How, Joining, Side};
use side_codec::both_sides;
pub use windowed::{Sides, WindowPairs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partners {
    /// The latest item of the other stream.
    Latest,
    /// The latest item of the right stream; items of the right stream bring nothing about themselves.
    Lookup,
    /// All items of the other stream that are at most so far away.
    Within(i64),
}

/// How two streams are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    partners: Partners,
    how: How,
    ttl: Option<i64>,
    per_key: Option<PerKey>,
}

impl Join {
    fn of(partners: Partners, how: How) -> Self {
        Join {
            partners,
            how,
            ttl: None,
            per_key: None,
        }
    }

    /// Each item, of either stream, with the latest one of the other.
    #[must_use]
    pub fn latest() -> Self {
        Join::of(Partners::Latest, How::Inner)
    }

    /// Each item of the left stream with the latest one of the right, or with nothing. The right stream
    /// is a table that changes slowly.
    #[must_use]
    pub fn lookup() -> Self {
        Join::of(Partners::Lookup, How::Left)
    }

    /// Each item with all items of the other stream that are at most `time` before or behind it.
    #[must_use]
    pub fn within(time: Duration) -> Self {
        Join::of(Partners::Within(nanos(time)), How::Inner)
    }

    /// Which items come out that find no partner.
    #[must_use]
    pub fn how(mut self, how: How) -> Self {
        self.how = how;
        self
    }

    /// Forgets the latest items of a key once event time has gone on by so much since its last one.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(nanos(ttl));
        self
    }

    /// Goes by a watermark of each key: an item is late only if its own key has had one, of either stream, that is more than
    /// `lateness` later, and takes its turn once its key has had one that much later.
    ///
    /// `patience`: the watermark of a silent key follows that of the partitions with this lag. Without it, what waits
    /// for its turn or for a partner waits until the key has later items or the input ends, and `ttl` counts from there. See
    /// [`Window::per_key`](crate::Window::per_key).
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

    /// How the watermark of a key follows, if there is one.
    #[must_use]
    pub fn by_key(&self) -> Option<PerKey> {
        self.per_key
    }
}

/// Makes what comes out of two partners, of which one may be missing.
pub trait Pair<L, R>: 'static {
    /// What comes out.
    type Out: 'static;
    /// What can go wrong.
    type Error;
    /// An output.
    ///
    /// # Errors
    /// What the maker says.
    fn pair(&self, left: Option<&L>, right: Option<&R>) -> Result<Self::Out, Self::Error>;
}

/// Copies.
struct Both;

impl<L: Data, R: Data> Pair<L, R> for Both {
    type Out = (Option<L>, Option<R>);
    type Error = Cause;
    fn pair(&self, left: Option<&L>, right: Option<&R>) -> Result<Self::Out, Cause> {
        Ok((left.cloned(), right.cloned()))
    }
}

/// A join as the logic of a key.
pub struct JoinLogic<L, R, P> {
    join: Join,
    timed: bool,
    pair: P,
    types: std::marker::PhantomData<fn(L, R)>,
}

impl<L, R, P> JoinLogic<L, R, P> {
    /// Joins as described; where the items have no times, as they come.
    pub fn new(join: Join, timed: bool, pair: P) -> Self {
        JoinLogic {
            join,
            timed,
            pair,
            types: std::marker::PhantomData,
        }
    }
}

fn is_left<L, R>(side: &Side<L, R>) -> bool {
    matches!(side, Side::Left(_))
}

impl<L: 'static, R: 'static, P: Pair<L, R>> JoinLogic<L, R, P> {
    /// An item takes its turn.
    fn turn<K>(
        &self,
        key: &K,
        held: &mut Joining<L, R>,
        item: Timed<Side<L, R>>,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let (time, stamp) = (item.time, (item.time, item.watermark));
        if let Some(ttl) = self.join.ttl {
            held.expires = time.saturating_add(ttl);
        }
        let single = !matches!(self.join.partners, Partners::Within(_));
        let lookup = self.join.partners == Partners::Lookup;
        match item.value {
            Side::Left(value) => {
                let mut alone = true;
                for right in &mut held.right {
                    (alone, right.alone) = (false, false);
                    give(
                        key,
                        stamp,
                        self.pair.pair(Some(&value), Some(&right.value))?,
                        out,
                    );
                }
                if alone && single && self.join.how != How::Inner {
                    give(key, stamp, self.pair.pair(Some(&value), None)?, out);
                }
                if !lookup {
                    keep(&mut held.left, Retained { time, alone, value }, single);
                }
            }
            Side::Right(value) => {
                let mut alone = true;
                for left in &mut held.left {
                    (alone, left.alone) = (false, false);
                    give(
                        key,
                        stamp,
                        self.pair.pair(Some(&left.value), Some(&value))?,
                        out,
                    );
                }
                if alone && single && self.join.how == How::Full && !lookup {
                    give(key, stamp, self.pair.pair(None, Some(&value))?, out);
                }
                keep(&mut held.right, Retained { time, alone, value }, single);
            }
        }
        Ok(())
    }

    /// The next moment at which an item is too old to find partners, and whether it is a left one.
    fn next_parting(&self, held: &Joining<L, R>) -> Option<(i64, bool)> {
        let Partners::Within(within) = self.join.partners else {
            return None;
        };
        let left = held.left.front().map(|kept| (kept.time, true));
        let right = held.right.front().map(|kept| (kept.time, false));
        let first = match (left, right) {
            (Some(left), Some(right)) if right.0 <= left.0 => right,
            (Some(left), _) => left,
            (None, right) => right?,
        };
        Some((first.0.saturating_add(within), first.1))
    }

    /// An item can find no partner any more.
    fn part<K>(
        &self,
        key: &K,
        held: &mut Joining<L, R>,
        (at, left): (i64, bool),
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let alone = if left {
            let kept = held.left.pop_front().filter(|kept| kept.alone);
            kept.filter(|_| self.join.how != How::Inner)
                .map(|kept| self.pair.pair(Some(&kept.value), None))
        } else {
            let kept = held.right.pop_front().filter(|kept| kept.alone);
            kept.filter(|_| self.join.how == How::Full)
                .map(|kept| self.pair.pair(None, Some(&kept.value)))
        };
        if let Some(output) = alone.transpose()? {
            give(key, (at, at), output, out);
        }
        Ok(())
    }
}

fn give<K, O, I>(
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

fn keep<T>(all: &mut VecDeque<Retained<T>>, item: Retained<T>, single: bool) {
    if single {
        all.clear();
    }
    all.push_back(item);
}

impl<K: 'static, L: 'static, R: 'static, P: Pair<L, R>> KeyLogic<K> for JoinLogic<L, R, P> {
    type State = Joining<L, R>;
    type In = Side<L, R>;
    type Out = P::Out;
    type Error = P::Error;

    fn open(&mut self, _: &K) -> Result<Joining<L, R>, P::Error> {
        Ok(Joining {
            waiting: VecDeque::new(),
            left: VecDeque::new(),
            right: VecDeque::new(),
            expires: NEVER,
        })
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut Joining<L, R>,
        item: Timed<Side<L, R>>,
        at: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        if !self.timed {
            return self.turn(key, held, item, out);
        }
        if item.time < item.watermark.max(at.event) {
            out.late(key, item);
            return Ok(());
        }
        let turn = (item.time, is_left(&item.value));
        let behind = held.waiting.iter().rev();
        let behind = behind.take_while(|other| (other.time, is_left(&other.value)) > turn);
        let place = held.waiting.len() - behind.count();
        // At its turn time has just come to it. What the watermark was when it came may depend on the other stream.
        let watermark = item.time;
        held.waiting.insert(place, Timed { watermark, ..item });
        Ok(())
    }

    fn on_due(
        &mut self,
        key: &K,
        held: &mut Joining<L, R>,
        until: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        // A watermark says that no item before it comes; one at it may.
        loop {
            let turn = held.waiting.front().map_or(NEVER, |item| item.time);
            let parting = self.next_parting(held);
            let parts = parting.map_or(NEVER, |(at, _)| at);
            // Before an item at this time, or a parting, the key may have been given up.
            if held.expires < until.event && held.expires < turn {
                held.left.clear();
                held.right.clear();
                held.expires = NEVER;
            } else if turn < until.event && turn <= parts {
                if let Some(mut item) = held.waiting.pop_front() {
                    item.watermark = item.time;
                    self.turn(key, held, item, out)?;
                }
            } else if parts < until.event
                && let Some(parting) = parting
            {
                self.part(key, held, parting, out)?;
            } else {
                return Ok(());
            }
        }
    }

    fn on_end(
        &mut self,
        key: &K,
        held: &mut Joining<L, R>,
        at: Moment,
        out: &mut impl Outputs<K, P::Out, Side<L, R>>,
    ) -> Result<(), P::Error> {
        let until = Moment { event: NEVER, ..at };
        self.on_due(key, held, until, out)?;
        held.left.clear();
        held.right.clear();
        Ok(())
    }

    fn next(&self, held: &Joining<L, R>) -> Moment {
        let turn = held.waiting.front().map_or(NEVER, |item| item.time);
        let parting = self.next_parting(held).map_or(NEVER, |(at, _)| at);
        let first = turn.min(parting).min(held.expires);
        Moment {
            event: first.saturating_add(1),
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, held: &Joining<L, R>) -> bool {
        held.waiting.is_empty() && held.left.is_empty() && held.right.is_empty()
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Joining<L, R>>, Cause> {
        Ok(Box::new(JoiningCodec {
            left: codecs.get()?,
            right: codecs.get()?,
        }))
    }
}

/// What comes out of a join: pairs, and the items that came too late.
pub type Pairs<K, L, R> = Outcome<K, Side<L, R>, (Option<L>, Option<R>)>;

impl<K: Key, L: Data> KeyedStream<K, Timed<L>> {
    /// Joins this stream, the left one, with `right`: pairs of items of one key. `join` says which items are partners.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. Items that are late go to `late`. With recovery the types of both streams are
    /// [announced](crate::Flow::saves).
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
            None => both.keep_timed("join", name, move || {
                KeyedStep::new(&called, false, logic())
            }),
            Some(how) => both.keep_timed("join", name, move || {
                KeyedStep::new(&called, false, ByKey::new(logic(), how))
            }),
        };
        Outcome { results, late }
    }
}
