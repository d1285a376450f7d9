//! Keyed streams: each item has a key, and steps may keep state for each key.
//!
//! A key belongs to one of 256 shards and a shard to one worker (see [`key`](crate::key)). All items of a key
//! therefore use the same state, in the order in which their source returned them. Items are sent to the worker
//! of their key once, just before the first step that keeps state.
//!
//! ```
//! use millstream_flow::{Emit, Flow, Options, testing};
//!
//! let flow = Flow::new("word-count");
//! let counts = testing::Collected::new();
//! flow.source("lines", testing::items(["a b", "b"].map(String::from)))
//!     .flat_map(|line: String| line.split(' ').map(String::from).collect::<Vec<_>>())
//!     .key_by(|word| word.clone())
//!     .count(Emit::End)
//!     .items()
//!     .sink("out", counts.sink());
//! flow.run(Options::default())?;
//! assert_eq!(counts.take(), [("a".to_string(), 1), ("b".to_string(), 2)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::ops::Deref;
use std::sync::Arc;

use crate::batch::{Data, key_and_value, timed};
use crate::dataflow::build::Route;
use crate::describe::stream::{Making, Pipe, Stream};
use crate::error::{Cause, Failure, FlowError};
use crate::key::{Key, Shards};
use crate::mutex::lock;
use crate::node::NodeId;
use crate::operators::verbs::each;
use crate::policy::OnError;
use crate::saved::codec::Rule;
use crate::state::{KeyLogic, KeyedStep};
use crate::step::Step;
use crate::time::Timed;

/// When an aggregate passes on its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Once for each key, when all input has ended; keys in the order of their first item.
    End,
    /// After each item.
    Each,
}

/// A stream whose items have a key.
///
/// A verb that depends on time exists twice under one name, and the type of the values decides which one a call means:
/// for a stream of [`Timed`] values, after [`event_time`](Stream::event_time), it follows event time; for others, where
/// it is a method of [`Untimed`], the clock of the run.
#[derive(Clone)]
pub struct KeyedStream<K, V>(Untimed<K, V>);

/// A keyed stream without times: the verbs of a [`KeyedStream`] that follow the clock of the run.
///
/// A [`KeyedStream`] dereferences to it. Where its values are [`Timed`], its own verbs of the same names come first.
#[derive(Clone)]
pub struct Untimed<K, V> {
    /// The streams that it is made of; several until an exchange joins them.
    pub(crate) parts: Vec<Stream<(K, V)>>,
    /// True when each item is on the worker of its key.
    placed: bool,
}

impl<K, V> Deref for KeyedStream<K, V> {
    type Target = Untimed<K, V>;
    fn deref(&self) -> &Untimed<K, V> {
        &self.0
    }
}

impl<K: Key, V: Data> Untimed<K, V> {
    /// The same stream with all its verbs.
    pub(crate) fn keyed(&self) -> KeyedStream<K, V> {
        KeyedStream(self.clone())
    }
}

/// Sends each item to the worker of its key.
struct ByKey;

impl<K: Key, V: Data> Route<Vec<(K, V)>> for ByKey {
    fn route(
        &mut self,
        batch: &mut Vec<(K, V)>,
        parts: &mut [Vec<(K, V)>],
        shards: Shards,
    ) -> Result<(), Failure> {
        let workers = parts.len();
        for item in batch.drain(..) {
            parts[shards.worker(item.0.stable_hash(), workers)].push(item);
        }
        Ok(())
    }
}

impl<T: Data> Stream<T> {
    /// Adds to each item the key that `f` returns for it. The items do not change.
    ///
    /// All items of a key use the same state in the steps that follow. They are sent to the worker of their key just
    /// before the first step that keeps state.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("words"), testing::Collected::new());
    /// flow.source("in", testing::items(["tea", "rum"]))
    ///     .key_by(|word: &&str| word.len() as u64)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(3, "tea"), (3, "rum")]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn key_by<K: Key>(&self, f: impl Fn(&T) -> K + Send + Sync + 'static) -> KeyedStream<K, T> {
        let keyed = each(self, "key_by", move |input: &mut Vec<T>, output| {
            output.extend(input.drain(..).map(|item| (f(&item), item)));
        });
        KeyedStream(Untimed {
            parts: vec![keyed],
            placed: false,
        })
    }
}

impl<K: Key, V: Data> Stream<(K, V)> {
    /// Makes the first member of each pair its key: what [`key_by`](Stream::key_by) does without a copy of the key, and
    /// the reverse of [`items`](KeyedStream::items).
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("words"), testing::Collected::new());
    /// flow.source("lines", testing::items(["tea rum tea".to_owned()]))
    ///     .flat_map(|line: String| line.split(' ').map(|word| (word.to_owned(), ())).collect::<Vec<_>>())
    ///     .into_keyed()
    ///     .count(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("tea".to_owned(), 2), ("rum".to_owned(), 1)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn into_keyed(&self) -> KeyedStream<K, V> {
        KeyedStream(Untimed {
            parts: vec![self.clone()],
            placed: false,
        })
    }
}

impl<K: Key, V: Data> Stream<Timed<(K, V)>> {
    /// Makes the first member of each pair its key, and keeps the time of the second, as
    /// [`into_keyed`](Stream::into_keyed) of pairs without times does.
    ///
    /// ```
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("orders"), testing::Collected::new());
    /// flow.source("in", testing::items([("tea", 5), ("rum", 9)]))
    ///     .event_time(|order: &(&str, i64)| order.1, EventTime::default())
    ///     .into_keyed()
    ///     .map(|amount| amount.time)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("tea", 5), ("rum", 9)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn into_keyed(&self) -> KeyedStream<K, Timed<V>> {
        let parted = |timed: Timed<(K, V)>| {
            let (time, watermark, (key, value)) = (timed.time, timed.watermark, timed.value);
            let value = Timed {
                time,
                watermark,
                value,
            };
            (key, value)
        };
        let keyed = each(self, "into_keyed", move |input: &mut Vec<_>, output| {
            output.extend(input.drain(..).map(parted));
        });
        keyed.into_keyed()
    }
}

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// Announces how values of a type that is composed of others are encoded.
    pub(crate) fn derive<T: 'static>(&self, rule: Rule<T>) {
        lock(&self.parts[0].graph).codecs.derive(rule);
    }

    /// The items on the workers of their keys, as one stream.
    fn placed(&self) -> Stream<(K, V)> {
        if self.placed {
            return self.parts[0].clone();
        }
        self.derive(key_and_value::<K, V>);
        Pipe::gather(
            "exchange",
            "",
            &self.parts,
            Some(Arc::new(|| Box::new(ByKey))),
        )
    }

    /// The items as one stream, wherever they are.
    pub(crate) fn joined(&self) -> Stream<(K, V)> {
        match self.parts.as_slice() {
            [only] => only.clone(),
            _ => self.placed(),
        }
    }

    pub(crate) fn with<U: Data>(&self, stream: Stream<(K, U)>) -> KeyedStream<K, U> {
        KeyedStream(Untimed {
            parts: vec![stream],
            placed: self.placed || self.parts.len() > 1,
        })
    }

    /// Names the step that the stream comes out of. Errors and metrics show the name. Of streams that were
    /// merged, the exchange in which they come together gets the name.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("sums"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .named("amount")
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert!(flow.describe().to_string().contains("amount"));
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let (stream, placed) = match self.parts.as_slice() {
            [only] => (only.clone(), self.placed),
            _ => (self.placed(), true),
        };
        KeyedStream(Untimed {
            parts: vec![stream.named(name)],
            placed,
        })
    }

    /// Calls `f` on each value, and passes on what it returns, with the key.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("tens"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .map(|n: i64| n * 10)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 10), ("b", 20), ("a", 30)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map<U: Data>(&self, f: impl Fn(V) -> U + Send + Sync + 'static) -> KeyedStream<K, U> {
        self.with(each(
            &self.joined(),
            "map",
            move |input: &mut Vec<(K, V)>, output| {
                output.extend(input.drain(..).map(|(key, value)| (key, f(value))));
            },
        ))
    }

    /// Passes on the values for which `f` returns true, and drops the others.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("odd"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .filter(|n: &i64| n % 2 == 1)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn filter(&self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> KeyedStream<K, V> {
        self.with(each(
            &self.joined(),
            "filter",
            move |input: &mut Vec<(K, V)>, output| {
                input.retain(|(_, value)| f(value));
                std::mem::swap(input, output);
            },
        ))
    }

    /// Calls `f` on each value, and passes on each item of what it returns, with the key.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("down"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .flat_map(|n: i64| (1..n).rev())
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("b", 1), ("a", 2), ("a", 1)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn flat_map<U: Data, I: IntoIterator<Item = U>>(
        &self,
        f: impl Fn(V) -> I + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        self.with(each(
            &self.joined(),
            "flat_map",
            move |input: &mut Vec<(K, V)>, output| {
                for (key, value) in input.drain(..) {
                    output.extend(f(value).into_iter().map(|item| (key.clone(), item)));
                }
            },
        ))
    }

    /// Calls `f` on each value, and passes on what is in the `Some` that it returns, with the key; for `None` nothing.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("halves"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .filter_map(|n: i64| (n % 2 == 0).then_some(n / 2))
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("b", 1)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn filter_map<U: Data>(
        &self,
        f: impl Fn(V) -> Option<U> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        self.with(each(
            &self.joined(),
            "filter_map",
            move |input: &mut Vec<(K, V)>, output| {
                output.extend(
                    input
                        .drain(..)
                        .filter_map(|(key, value)| Some((key, f(value)?))),
                );
            },
        ))
    }

    /// Calls `f` on each batch of keys and values, and passes on the batch that it returns.
    ///
    /// The engine decides which items are in one batch, so the result of `f` for an item must not depend on
    /// the others. `f` must return each key as it is: items are on the workers of their keys.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("negative"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .map_batch(|batch| batch.into_iter().map(|(key, n): (_, i64)| (key, -n)).collect())
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", -1), ("b", -2), ("a", -3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map_batch<U: Data>(
        &self,
        f: impl Fn(Vec<(K, V)>) -> Vec<(K, U)> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        self.with(each(&self.joined(), "map_batch", move |input, output| {
            *output = f(std::mem::take(input));
        }))
    }

    /// Calls `f` on each key and value, and passes both on as they are.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicI64, Ordering};
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("seen"), testing::Collected::new());
    /// let seen = Arc::new(AtomicI64::new(0));
    /// let sum = Arc::clone(&seen);
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .inspect(move |_key, item| drop(sum.fetch_add(item.1, Ordering::Relaxed)))
    ///     .values()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(seen.load(Ordering::Relaxed), 6);
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn inspect(&self, f: impl Fn(&K, &V) + Send + Sync + 'static) -> KeyedStream<K, V> {
        self.with(each(
            &self.joined(),
            "inspect",
            move |input: &mut Vec<(K, V)>, output| {
                input.iter().for_each(|(key, value)| f(key, value));
                std::mem::swap(input, output);
            },
        ))
    }

    /// Divides the stream in two: the values for which `f` returns true, and the others.
    ///
    /// The values of a stream that no step reads are dropped.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("large"), testing::Collected::new());
    /// let keyed = flow.source("in", testing::items([("a", 1), ("b", 5)])).key_by(|item: &(&str, i64)| item.0);
    /// let (large, _small) = keyed.branch(|item| item.1 > 2);
    /// large.values().sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("b", 5)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn branch(&self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> (Self, Self) {
        let (yes, no) = self.joined().branch(move |(_, value)| f(value));
        (self.with(yes), self.with(no))
    }

    /// Joins this stream and others of the same type to one. The order within each of them is kept.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::ForeignStream`] when one of them belongs to another flow.
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("both"), testing::Collected::new());
    /// let [left, right] = ["left", "right"].map(|name| flow.source(name, testing::items([1, 2])).key_by(|n: &i64| *n));
    /// left.merge(&[right]).count(Emit::End).items().sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(1, 2), (2, 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn merge(&self, others: &[KeyedStream<K, V>]) -> KeyedStream<K, V> {
        let mut all = vec![self];
        all.extend(others);
        if all.iter().any(|stream| stream.placed) {
            self.derive(key_and_value::<K, V>);
            let parts: Vec<_> = all.iter().map(|stream| stream.placed()).collect();
            return KeyedStream(Untimed {
                parts: vec![parts[0].merge(&parts[1..])],
                placed: true,
            });
        }
        let parts = all
            .iter()
            .flat_map(|stream| stream.parts.iter().cloned())
            .collect();
        KeyedStream(Untimed {
            parts,
            placed: false,
        })
    }

    /// Passes on each key and its value as a pair, in a stream without keys.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("pairs"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn items(&self) -> Stream<(K, V)> {
        self.derive(key_and_value::<K, V>);
        self.joined()
    }

    /// Passes on the values without their keys.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("values"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .values()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 2, 3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn values(&self) -> Stream<V> {
        each(
            &self.joined(),
            "values",
            |input: &mut Vec<(K, V)>, output| {
                output.extend(input.drain(..).map(|(_, value)| value));
            },
        )
    }

    /// Joins a step that keeps state which belongs to no key: with another number of workers items may come
    /// out of it on other workers than those of their keys.
    pub(crate) fn keep_anywhere<U: Data, S: Step<Vec<(K, V)>, Vec<(K, U)>>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn(&Making<'_>) -> Result<S, FlowError> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let joined = self.joined();
        lock(&joined.graph).demand_name(kind, name);
        KeyedStream(Untimed {
            parts: vec![joined.step(kind, name, make)],
            placed: false,
        })
    }

    /// Announces the sink of the dead letters of the step that this stream comes out of.
    pub(crate) fn settles_by(self, on_error: &OnError) -> Self {
        self.each_part(|part| part.settles_by(on_error))
    }

    /// The output of the step depends on the order in which the items of a key arrive.
    pub(crate) fn in_order(self) -> Self {
        self.each_part(Stream::in_order)
    }

    /// Adds to the description of the step what its saved state depends on besides its kind.
    pub(crate) fn detailed(self, detail: &str) -> Self {
        self.each_part(|part| part.detailed(detail))
    }

    /// The step joins these streams.
    pub(crate) fn joins(self, sides: Vec<Vec<NodeId>>) -> Self {
        self.each_part(|part| {
            part.joins(sides.clone());
            part
        })
    }

    /// The nodes whose items are those of this stream.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.parts.iter().map(Stream::node).collect()
    }

    fn each_part(self, change: impl Fn(Stream<(K, V)>) -> Stream<(K, V)>) -> Self {
        KeyedStream(Untimed {
            parts: self.0.parts.into_iter().map(change).collect(),
            placed: self.0.placed,
        })
    }

    /// Joins a step that keeps state for each key.
    pub(crate) fn keep<U: Data, S: Step<Vec<(K, V)>, Vec<(K, U)>>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        self.keep_with(kind, name, move |_| Ok(make()))
    }

    /// [`keep`](Self::keep), with a function that gets the [`Making`] of the worker.
    pub(crate) fn keep_with<U: Data, S: Step<Vec<(K, V)>, Vec<(K, U)>>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn(&Making<'_>) -> Result<S, FlowError> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let placed = self.placed();
        lock(&placed.graph).demand_name(kind, name);
        KeyedStream(Untimed {
            parts: vec![placed.step(kind, name, make)],
            placed: true,
        })
    }
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Joins a step that keeps state for each key and knows time: its outputs, and the items that are late. `by_time`
    /// says whether it processes items in the order of their times, or in that of their arrival.
    pub(crate) fn keep_timed<U, L>(
        &self,
        (kind, by_time): (&'static str, bool),
        name: &str,
        make: impl Fn() -> KeyedStep<K, L> + Send + Sync + 'static,
    ) -> (KeyedStream<K, Timed<U>>, KeyedStream<K, Timed<V>>)
    where
        U: Data,
        L: KeyLogic<K, In = V, Out = U, Error = Cause>,
    {
        self.derive(timed::<V>);
        self.derive(timed::<U>);
        let placed = self.placed();
        lock(&placed.graph).demand_name(kind, name);
        let step = placed.step(kind, name, move |_| Ok(make())).timed();
        let step = if by_time {
            step.by_time()
        } else {
            step.in_order()
        };
        let (outputs, late) = step.halves();
        let keyed = |part| {
            KeyedStream(Untimed {
                parts: vec![part],
                placed: true,
            })
        };
        (
            keyed(outputs),
            KeyedStream(Untimed {
                parts: vec![late],
                placed: true,
            }),
        )
    }
}
