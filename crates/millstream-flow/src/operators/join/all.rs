//! Joins of any number of keyed streams: a tuple with a value of each.
//!
//! Invariant: the state of a key has the values that count by [`Insert`], by their streams, and nothing for a stream
//! without values. Values with times are processed in their order, those of one time in the order of the streams;
//! values without in the order of arrival, which between streams is arbitrary. The modes are those of Bytewax.

use std::time::Duration;

use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::{KeyedStream, Untimed};
use crate::operators::window::Outcome;
use crate::saved::raw::{RAW, Raw};
use crate::state::{Growing, InTurn, KeyLogic, KeyedStep, Moment, Outputs};
use crate::time::{NEVER, Timed, nanos};

/// When a row is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Complete,
    Running,
    Final,
}

/// The values of one stream that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Insert {
    /// The first one.
    First,
    /// The last one.
    Last,
    /// All: a row is emitted for each combination.
    Product,
}

/// The definition of [`join_all`](KeyedStream::join_all).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinAll {
    rows: Rows,
    insert: Insert,
    ttl: Option<i64>,
}

impl JoinAll {
    /// Describes what the state of a join into such rows depends on.
    fn describe<T: Row>(self) -> String {
        match self.insert {
            Insert::Product => format!("{} streams, product", T::STREAMS),
            Insert::First | Insert::Last => format!("{} streams", T::STREAMS),
        }
    }

    fn of(rows: Rows) -> Self {
        JoinAll {
            rows,
            insert: Insert::Last,
            ttl: None,
        }
    }

    /// Emits a row when each stream has a value for the key, and then removes these values.
    #[must_use]
    pub fn complete() -> Self {
        JoinAll::of(Rows::Complete)
    }

    /// Emits a row after each value, with `None` for streams without a value.
    #[must_use]
    pub fn running() -> Self {
        JoinAll::of(Rows::Running)
    }

    /// Emits a row of each key when all input has ended.
    #[must_use]
    pub fn at_end() -> Self {
        JoinAll::of(Rows::Final)
    }

    /// Sets which values of one stream count. The default is the last one.
    #[must_use]
    pub fn insert(mut self, insert: Insert) -> Self {
        self.insert = insert;
        self
    }

    /// Removes a key that has had no value for this much time: event time where the streams have times, else processing
    /// time.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(nanos(ttl));
        self
    }
}

/// A tuple of options, one for each stream of a join. In the state of a key exactly one of them is set.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Row: Data + Default {
    /// The number of streams.
    const STREAMS: usize;
    /// The codecs of the values.
    type Codecs: 'static;
    /// Returns the number of the stream of the first value that is set.
    fn stream(&self) -> usize;
    /// Copies the values that are set in `other`.
    fn merge(&mut self, other: &Self);
    /// Finds the codecs of the values.
    ///
    /// # Errors
    /// A type that was not announced.
    fn codecs(codecs: &Codecs) -> Result<Self::Codecs, Cause>;
    /// Appends the value of one stream.
    ///
    /// # Errors
    /// The value cannot be encoded.
    fn save(&self, codecs: &Self::Codecs, out: &mut Vec<u8>) -> Result<(), Cause>;
    /// Decodes the value of a stream from the start of `from`.
    ///
    /// # Errors
    /// The bytes were not written by `save`.
    fn load(stream: usize, codecs: &Self::Codecs, from: &mut &[u8]) -> Result<Self, Cause>;
    /// Divides the row into rows of one value.
    fn split(&self) -> Vec<Self>;
}

/// The rule for rows: the number of values, then for each the number of its stream, and the value.
fn row<T: Row>(codecs: &Codecs) -> Result<BoxedCodec<T>, Cause> {
    struct RowCodec<T: Row>(T::Codecs);
    impl<T: Row> StateCodec<T> for RowCodec<T> {
        fn save(&self, row: &T, out: &mut Vec<u8>) -> Result<(), Cause> {
            let parts = row.split();
            pack::list(parts.len(), out);
            for part in parts {
                pack::integer(part.stream() as i64, out);
                part.save(&self.0, out)?;
            }
            Ok(())
        }
        fn load(&self, from: &mut &[u8]) -> Result<T, Cause> {
            let mut row = T::default();
            for _ in 0..pack::take_list(from)? {
                let stream = pack::take_count(from)?;
                let stream = usize::try_from(stream).ok().filter(|at| *at < T::STREAMS);
                let stream = stream.ok_or("a value of a stream that is not joined")?;
                row.merge(&T::load(stream, &self.0, from)?);
            }
            Ok(row)
        }
    }
    Ok(Box::new(RowCodec::<T>(T::codecs(codecs)?)))
}

/// All values as rows of one value: those of the first stream, and those of the others in their order.
type AllRows<K, T> = (KeyedStream<K, T>, Vec<KeyedStream<K, T>>);

/// The other streams of a join: a tuple of one to seven of them.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Others<K, V> {
    /// The type of the outputs.
    type Row: Row;
    /// Converts all values to rows of one value: those of `first`, and those of the others in their order.
    fn rows(self, first: &KeyedStream<K, V>) -> AllRows<K, Self::Row>;
}

/// The other streams of a join of streams with times: a tuple of one to seven of them.
pub trait TimedOthers<K, V> {
    /// The type of the outputs.
    type Row: Row;
    /// Converts all values to rows of one value with its time: those of `first`, and those of the others in their
    /// order.
    fn rows(self, first: &KeyedStream<K, Timed<V>>) -> AllRows<K, Timed<Self::Row>>;
}

macro_rules! rows {
    ($first:ident $zero:tt, $($type:ident $place:tt),+) => {
        impl<$first: Data, $($type: Data),+> Row for (Option<$first>, $(Option<$type>),+) {
            const STREAMS: usize = [$zero, $($place),+].len();
            type Codecs = (Codec<$first>, $(Codec<$type>),+);
            fn stream(&self) -> usize {
                $(if self.$place.is_some() { return $place; })+
                $zero
            }
            fn merge(&mut self, other: &Self) {
                if other.$zero.is_some() { self.$zero.clone_from(&other.$zero); }
                $(if other.$place.is_some() { self.$place.clone_from(&other.$place); })+
            }
            fn codecs(codecs: &Codecs) -> Result<Self::Codecs, Cause> {
                Ok((codecs.get::<$first>()?, $(codecs.get::<$type>()?),+))
            }
            fn save(&self, codecs: &Self::Codecs, out: &mut Vec<u8>) -> Result<(), Cause> {
                if let Some(value) = &self.$zero { codecs.$zero.save(value, out)?; }
                $(if let Some(value) = &self.$place { codecs.$place.save(value, out)?; })+
                Ok(())
            }
            fn load(stream: usize, codecs: &Self::Codecs, from: &mut &[u8]) -> Result<Self, Cause> {
                let mut row = Self::default();
                match stream {
                    $($place => row.$place = Some(codecs.$place.load(from)?),)+
                    _ => row.$zero = Some(codecs.$zero.load(from)?),
                }
                Ok(row)
            }
            fn split(&self) -> Vec<Self> {
                let mut parts = Vec::new();
                if self.$zero.is_some() {
                    let mut part = Self::default();
                    part.$zero.clone_from(&self.$zero);
                    parts.push(part);
                }
                $(if self.$place.is_some() {
                    let mut part = Self::default();
                    part.$place.clone_from(&self.$place);
                    parts.push(part);
                })+
                parts
            }
        }

        impl<Key_: Key, $first: Data, $($type: Data),+> Others<Key_, $first> for ($(&KeyedStream<Key_, $type>,)+) {
            type Row = (Option<$first>, $(Option<$type>),+);
            #[expect(non_snake_case, reason = "a stream is named as its type")]
            fn rows(self, first: &KeyedStream<Key_, $first>) -> AllRows<Key_, Self::Row> {
                let ($($type,)+) = self;
                (
                    first.map(|value| { let mut row = Self::Row::default(); row.$zero = Some(value); row }),
                    vec![$($type.map(|value| { let mut row = Self::Row::default(); row.$place = Some(value); row })),+],
                )
            }
        }

        impl<Key_: Key, $first: Data, $($type: Data),+> TimedOthers<Key_, $first> for ($(&KeyedStream<Key_, Timed<$type>>,)+) {
            type Row = (Option<$first>, $(Option<$type>),+);
            #[expect(non_snake_case, reason = "a stream is named as its type")]
            fn rows(self, first: &KeyedStream<Key_, Timed<$first>>) -> AllRows<Key_, Timed<Self::Row>> {
                let ($($type,)+) = self;
                (
                    first.map(|timed| timed.map(|value| { let mut row = Self::Row::default(); row.$zero = Some(value); row })),
                    vec![$($type.map(|timed| timed.map(|value| {
                        let mut row = Self::Row::default();
                        row.$place = Some(value);
                        row
                    }))),+],
                )
            }
        }
    };
}

rows!(A 0, B 1);
rows!(A 0, B 1, C 2);
rows!(A 0, B 1, C 2, D 3);
rows!(A 0, B 1, C 2, D 3, E 4);
rows!(A 0, B 1, C 2, D 3, E 4, F 5);
rows!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
rows!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// The values of one key that count, by their streams.
struct KeyValues<T> {
    streams: Vec<Growing<T>>,
    /// The time at which the key is removed: event time where the streams have times, else processing time.
    expires: i64,
}

impl<T: Row> KeyValues<T> {
    fn nothing() -> Self {
        KeyValues {
            streams: (0..T::STREAMS).map(|_| Growing::default()).collect(),
            expires: NEVER,
        }
    }

    fn clear(&mut self) {
        *self = KeyValues::nothing();
    }

    /// Returns each combination of the values; those of the last stream change first.
    fn rows(&self) -> Vec<T> {
        let mut rows = vec![T::default()];
        for values in self.streams.iter().filter(|values| !values.is_empty()) {
            let with = |row: &T| -> Vec<T> {
                let with = values.iter().map(|value| {
                    let mut row = row.clone();
                    row.merge(value);
                    row
                });
                with.collect()
            };
            rows = rows.iter().flat_map(with).collect();
        }
        rows
    }
}

/// The join as the logic of a key.
struct AllLogic<T> {
    how: JoinAll,
    /// Whether the streams have times.
    timed: bool,
    types: std::marker::PhantomData<fn(T)>,
}

impl<K: 'static, T: Row> KeyLogic<K> for AllLogic<T> {
    type State = KeyValues<T>;
    type In = T;
    type Out = T;
    type Error = Cause;

    fn open(&mut self, _: &K) -> Result<KeyValues<T>, Cause> {
        Ok(KeyValues::nothing())
    }

    fn on_item(
        &mut self,
        key: &K,
        seen: &mut KeyValues<T>,
        item: Timed<T>,
        at: Moment,
        out: &mut impl Outputs<K, T, T>,
    ) -> Result<(), Cause> {
        if let Some(ttl) = self.how.ttl {
            seen.expires = match (self.timed, seen.expires) {
                (false, _) => at.processing.saturating_add(ttl),
                (true, NEVER) => item.time.saturating_add(ttl),
                (true, before) => before.max(item.time.saturating_add(ttl)),
            };
        }
        let times = Timed {
            time: item.time,
            watermark: item.watermark,
            value: (),
        };
        let values = &mut seen.streams[item.value.stream()];
        match self.how.insert {
            Insert::First if !values.is_empty() => {}
            Insert::Product => values.push(item.value),
            Insert::First | Insert::Last => *values.change() = vec![item.value],
        }
        let whole = seen.streams.iter().all(|values| !values.is_empty());
        if self.how.rows == Rows::Running || (self.how.rows == Rows::Complete && whole) {
            for row in seen.rows() {
                out.result(key, times.map(|()| row));
            }
        }
        if self.how.rows == Rows::Complete && whole {
            seen.clear();
        }
        Ok(())
    }

    fn on_due(
        &mut self,
        _: &K,
        seen: &mut KeyValues<T>,
        until: Moment,
        _: &mut impl Outputs<K, T, T>,
    ) -> Result<(), Cause> {
        let reached = if self.timed {
            until.event
        } else {
            until.processing
        };
        if seen.expires <= reached {
            seen.clear();
        }
        Ok(())
    }

    fn on_end(
        &mut self,
        key: &K,
        seen: &mut KeyValues<T>,
        at: Moment,
        out: &mut impl Outputs<K, T, T>,
    ) -> Result<(), Cause> {
        if self.how.rows == Rows::Final {
            for value in seen.rows() {
                let time = at.event;
                let watermark = at.event;
                out.result(
                    key,
                    Timed {
                        time,
                        watermark,
                        value,
                    },
                );
            }
        }
        seen.clear();
        Ok(())
    }

    fn next(&self, seen: &KeyValues<T>) -> Moment {
        if self.timed {
            Moment {
                event: seen.expires,
                ..Moment::NEVER
            }
        } else {
            Moment {
                processing: seen.expires,
                ..Moment::NEVER
            }
        }
    }

    fn is_empty(&self, seen: &KeyValues<T>) -> bool {
        seen.streams.iter().all(|values| values.is_empty())
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<KeyValues<T>>, Cause> {
        Ok(Box::new(KeyValuesCodec::<T>(T::codecs(codecs)?)))
    }
}

/// The codec of `[expires, [value...]...]`, with a list for each stream; what has changed has the added values.
struct KeyValuesCodec<T: Row>(T::Codecs);

/// Reads a state without its types: the time at which the key is removed, and the values of each stream.
pub(crate) fn read_values(mut from: &[u8]) -> Result<(i64, Vec<Vec<Raw>>), Cause> {
    let mut streams = Vec::new();
    let mut expires = NEVER;
    while !from.is_empty() {
        let count = pack::take_list(&mut from)?.saturating_sub(1);
        expires = pack::take_integer(&mut from)?;
        streams.resize_with(count, Vec::new);
        for values in &mut streams {
            for _ in 0..pack::take_list(&mut from)? {
                values.push(RAW.load(&mut from)?);
            }
        }
    }
    Ok((expires, streams))
}

impl<T: Row> KeyValuesCodec<T> {
    fn save_lists<'a>(
        &self,
        expires: i64,
        streams: impl Iterator<Item = &'a [T]>,
        out: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        pack::list(1 + T::STREAMS, out);
        pack::integer(expires, out);
        for values in streams {
            pack::list(values.len(), out);
            for value in values {
                value.save(&self.0, out)?;
            }
        }
        Ok(())
    }
}

impl<T: Row> StateCodec<KeyValues<T>> for KeyValuesCodec<T> {
    fn save(&self, seen: &KeyValues<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
        seen.streams.iter().for_each(Growing::set_saved);
        self.save_lists(
            seen.expires,
            seen.streams.iter().map(|values| &**values),
            out,
        )
    }
    fn load(&self, from: &mut &[u8]) -> Result<KeyValues<T>, Cause> {
        let mut seen = KeyValues::nothing();
        self.load_added(&mut seen, from)?;
        Ok(seen)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("streams");
    }
    fn save_added(&self, seen: &KeyValues<T>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let added: Option<Vec<_>> = seen.streams.iter().map(Growing::added).collect();
        let Some(added) = added else {
            return Ok(false);
        };
        self.save_lists(seen.expires, added.into_iter(), out)?;
        seen.streams.iter().for_each(Growing::set_saved);
        Ok(true)
    }
    fn load_added(&self, seen: &mut KeyValues<T>, from: &mut &[u8]) -> Result<(), Cause> {
        pack::take_members(1 + T::STREAMS, from)?;
        seen.expires = pack::take_integer(from)?;
        for (stream, values) in seen.streams.iter_mut().enumerate() {
            for _ in 0..pack::take_list(from)? {
                values.push(T::load(stream, &self.0, from)?);
            }
            values.set_saved();
        }
        Ok(())
    }
}

/// The nodes of the streams, by their sides.
fn sides<K: Key, V: Data>(
    first: &KeyedStream<K, V>,
    rest: &[KeyedStream<K, V>],
) -> Vec<Vec<usize>> {
    let all = std::iter::once(first).chain(rest);
    all.map(KeyedStream::nodes).collect()
}

impl<K: Key, V: Data> Untimed<K, V> {
    /// Joins this stream with one to seven others: tuples of a value of each, this stream's first. Values are processed
    /// in the order of arrival; those of streams with times, by the [verb of the same name](KeyedStream::join_all), in
    /// the order of their times. [`JoinAll::running`] and [`JoinAll::at_end`] keep every key until [`JoinAll::ttl`] has
    /// passed. With recovery the types of all streams must be announced, and a saved join of another number of streams
    /// is an error at the start.
    ///
    /// ```
    /// use millstream_flow::join::JoinAll;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("orders"), testing::Collected::new());
    /// let orders = flow.source("orders", testing::items([(1, "tea"), (2, "rum")])).key_by(|order| order.0);
    /// let paid = flow.source("paid", testing::items([(2, 700), (1, 250)])).key_by(|paid| paid.0);
    /// let sent = flow.source("sent", testing::items([1])).key_by(|order| *order);
    /// let (orders, paid) = (orders.map(|order| order.1), paid.map(|paid| paid.1));
    /// orders.join_all("done", (&paid, &sent), JoinAll::complete()).items().sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(1, (Some("tea"), Some(250), Some(1)))]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn join_all<O: Others<K, V>>(
        &self,
        name: &str,
        others: O,
        how: JoinAll,
    ) -> KeyedStream<K, O::Row> {
        self.keyed().derive(row::<O::Row>);
        let (first, rest) = others.rows(&self.keyed());
        let sides = sides(&first, &rest);
        let called = name.to_owned();
        let joined = first.merge(&rest).keep("join_all", name, move || {
            let types = std::marker::PhantomData;
            let timed = false;
            KeyedStep::new(&called, true, AllLogic::<O::Row> { how, timed, types })
        });
        joined
            .in_order()
            .detailed(&how.describe::<O::Row>())
            .joins(sides)
    }
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Joins this stream with one to seven others with times: tuples of a value of each, this stream's first. Values
    /// are processed in the order of their times, those of one time in the order of the streams, once the watermark has
    /// passed them.
    ///
    /// [`JoinAll::running`] and [`JoinAll::at_end`] keep every key until event time is [`JoinAll::ttl`] later than its
    /// latest value. A value that is late goes to `late`, as a row of its own. With recovery the types of all streams
    /// must be announced, and a saved join of another number of streams is an error at the start.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::join::JoinAll;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("prices"), testing::Collected::new());
    /// let timed = |name, items: &[(i64, i64)]| {
    ///     let stream = flow.source(name, testing::items(items.to_vec())).event_time(|item| item.0, EventTime::default());
    ///     stream.key_by(|_| "tea").map(|item| item.map(|item| item.1))
    /// };
    /// let (prices, orders) = (timed("prices", &[(0, 10), (5, 20)]), timed("orders", &[(3, 1), (7, 2)]));
    /// let rows = prices.join_all("costs", (&orders,), JoinAll::running());
    /// rows.results.values().map(|row| row.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(Some(10), None), (Some(10), Some(1)), (Some(20), Some(1)), (Some(20), Some(2))]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn join_all<O: TimedOthers<K, V>>(
        &self,
        name: &str,
        others: O,
        how: JoinAll,
    ) -> Outcome<K, O::Row, O::Row> {
        self.derive(row::<O::Row>);
        let (first, rest) = others.rows(self);
        let sides = sides(&first, &rest);
        let called = name.to_owned();
        let merged = first.merge(&rest);
        let (results, late) = merged.keep_timed(("join_all", true), name, move || {
            let timed = true;
            let types = std::marker::PhantomData;
            let logic = AllLogic::<O::Row> { how, timed, types };
            let ordered = InTurn::by_time(logic, O::Row::clone, |row| row.stream() as i64);
            KeyedStep::new(&called, true, ordered)
        });
        let results = results.detailed(&how.describe::<O::Row>()).joins(sides);
        Outcome { results, late }
    }
}
