//! One value for each key: `fold`, `reduce`, `count`, `sum`, `min`, `max` and `mean`.
//!
//! ```
//! use millstream_flow::{Emit, Flow, Options, testing};
//!
//! let (flow, out) = (Flow::new("counts"), testing::Collected::new());
//! flow.source("words", testing::items(["a", "b", "a"]))
//!     .key_by(|word: &&'static str| *word)
//!     .count(Emit::End)
//!     .items()
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("a", 2), ("b", 1)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::ops::AddAssign;
use std::sync::Arc;

use crate::batch::Data;
use crate::key::Key;
use crate::operators::keyed::{Emit, KeyedStream};
use crate::operators::misplaced::needs_keys;
use crate::operators::stateful::PlainStep;
use crate::state::Plain;

needs_keys!(
    count<>(Emit);
    sum<>(Emit);
    min<>(Emit);
    max<>(Emit);
    mean<>(Emit);
    reduce<>(&str, Emit, impl Fn(T, T) -> T);
    fold<A>(&str, Emit, A, impl Fn(&mut A, T));
);

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// Calls `f` with the accumulator of the key and each value; the accumulator of a new key is a copy of `init`.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// `name` is the name of the step in errors, metrics and saved state. With recovery the type of the
    /// accumulator is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("lists"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .fold("list", Emit::End, Vec::new(), |list, n: i64| list.push(n))
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", vec![1, 3]), ("b", vec![2])]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn fold<A: Data + Sync>(
        &self,
        name: &str,
        emit: Emit,
        init: A,
        f: impl Fn(&mut A, V) + Send + Sync + 'static,
    ) -> KeyedStream<K, A> {
        let read = |acc: &A| Some(acc.clone());
        let folded = self.aggregate("fold", name, emit, move |_| init.clone(), f, read);
        folded.in_order()
    }

    /// Combines the values of each key by `f`, which is called with the result so far and the next value.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// `name` is the name of the step in errors, metrics and saved state. With recovery the type of the
    /// values is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("products"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .reduce("product", Emit::Each, |a: i64, b| a * b)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn reduce(
        &self,
        name: &str,
        emit: Emit,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> KeyedStream<K, V> {
        self.combine("reduce", name, emit, f).in_order()
    }

    /// Counts the values of each key.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// The step is named `count`; a second one in a flow needs a name by [`named`](Self::named).
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("counts"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .count(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 2), ("b", 1)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn count(&self, emit: Emit) -> KeyedStream<K, u64> {
        let add = |count: &mut u64, _| *count += 1;
        self.aggregate("count", "count", emit, |_| 0, add, |count| Some(*count))
    }

    /// Adds up the values of each key.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// The step is named `sum`; a second one in a flow needs a name by [`named`](Self::named).
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("sums"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .sum(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 4), ("b", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn sum(&self, emit: Emit) -> KeyedStream<K, V>
    where
        V: AddAssign,
    {
        self.combine("sum", "sum", emit, |mut sum, value| {
            sum += value;
            sum
        })
    }

    /// Finds the least value of each key; of equal ones, the first.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// The step is named `min`; a second one in a flow needs a name by [`named`](Self::named). A value that
    /// compares with none, as `f64::NAN`, never replaces another.
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("least"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .min(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn min(&self, emit: Emit) -> KeyedStream<K, V>
    where
        V: PartialOrd,
    {
        self.combine("min", "min", emit, |a, b| if b < a { b } else { a })
    }

    /// Finds the greatest value of each key; of equal ones, the first.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// The step is named `max`; a second one in a flow needs a name by [`named`](Self::named). A value that
    /// compares with none, as `f64::NAN`, never replaces another.
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("greatest"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .max(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 3), ("b", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn max(&self, emit: Emit) -> KeyedStream<K, V>
    where
        V: PartialOrd,
    {
        self.combine("max", "max", emit, |a, b| if b > a { b } else { a })
    }

    /// Computes the mean of the values of each key.
    ///
    /// `emit` says when the value of a key is passed on: after each item, or once at the end of the input.
    /// The step is named `mean`; a second one in a flow needs a name by [`named`](Self::named).
    ///
    /// ```
    /// use millstream_flow::{Emit, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("means"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 4)]))
    ///     .into_keyed()
    ///     .mean(Emit::End)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 2.5), ("b", 2.0)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn mean(&self, emit: Emit) -> KeyedStream<K, f64>
    where
        V: Into<f64>,
    {
        let add = |(sum, count): &mut (f64, u64), value: V| {
            *sum += value.into();
            *count += 1;
        };
        let mean = |(sum, count): &(f64, u64)| Some(sum / *count as f64);
        self.aggregate("mean", "mean", emit, |_| (0.0, 0), add, mean)
    }

    fn combine(
        &self,
        kind: &'static str,
        name: &str,
        emit: Emit,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> KeyedStream<K, V> {
        let fold = move |acc: &mut Option<V>, value| {
            *acc = Some(match acc.take() {
                Some(before) => f(before, value),
                None => value,
            });
        };
        self.aggregate(kind, name, emit, |_| None, fold, Option::clone)
    }

    /// `f` takes a value in, `read` gives the aggregate; only after an item, so that it is there.
    fn aggregate<A: Send + 'static, U: Data>(
        &self,
        kind: &'static str,
        name: &str,
        emit: Emit,
        init: impl Fn(&K) -> A + Send + Sync + 'static,
        f: impl Fn(&mut A, V) + Send + Sync + 'static,
        read: fn(&A) -> Option<U>,
    ) -> KeyedStream<K, U> {
        let init = Arc::new(init);
        let f = Arc::new(f);
        self.keep(kind, name, move || {
            let init = Arc::clone(&init);
            let f = Arc::clone(&f);
            PlainStep {
                states: Plain::default(),
                init: move |key: &K| init(key),
                on_item: move |acc: &mut A, key: &K, value: V, out: &mut Vec<(K, U)>| {
                    f(acc, value);
                    if emit == Emit::Each {
                        out.extend(read(acc).map(|result| (key.clone(), result)));
                    }
                },
                on_end: move |acc: &mut A, key: &K, out: &mut Vec<(K, U)>| {
                    if emit == Emit::End {
                        out.extend(read(acc).map(|result| (key.clone(), result)));
                    }
                },
            }
        })
    }
}
