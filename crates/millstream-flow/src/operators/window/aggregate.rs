//! Aggregates make results from the items of windows.

use std::marker::PhantomData;
use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Outcome, Windows};
use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codecs};
use crate::error::Cause;
use crate::key::Key;
use crate::time::Timed;

/// The start and end of a window; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its first moment; for windows by number, the least time of their items.
    pub start: i64,
    /// The moment after its last; for windows by number, the greatest time of their items.
    pub end: i64,
    /// True for an early result, of a window that is still open.
    pub early: bool,
}

/// A result with its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Windowed<T> {
    /// The first moment of the window; nanoseconds.
    pub start: i64,
    /// The moment after its last; nanoseconds.
    pub end: i64,
    /// True for an early result.
    pub early: bool,
    /// The result.
    pub value: T,
}

impl<T> Windowed<T> {
    /// Creates a result with its window.
    pub fn new(bounds: Bounds, value: T) -> Self {
        Windowed {
            start: bounds.start,
            end: bounds.end,
            early: bounds.early,
            value,
        }
    }
}

/// Makes a result from the items of a window.
pub trait Aggregate: 'static {
    /// The type of the items.
    type In: 'static;
    /// The state of an open window. With recovery its type must be [announced](crate::Flow::saves).
    type Acc: 'static;
    /// The result.
    type Out: 'static;
    /// The type of the errors.
    type Error;

    /// Creates the accumulator of a window without items.
    ///
    /// # Errors
    /// The failure of a function of the user, as for all methods below.
    fn initial(&mut self) -> Result<Self::Acc, Self::Error>;
    /// Adds an item to an accumulator.
    ///
    /// # Errors
    /// As for `initial`.
    fn add(&mut self, acc: &mut Self::Acc, value: Self::In) -> Result<(), Self::Error>;
    /// Adds an item with its time. Windows call this; the default drops the time.
    ///
    /// # Errors
    /// As for `initial`.
    #[doc(hidden)] // For the other crates of Millstream.
    fn add_timed(&mut self, acc: &mut Self::Acc, item: Timed<Self::In>) -> Result<(), Self::Error> {
        self.add(acc, item.value)
    }
    /// Adds another accumulator, of later items, to an accumulator.
    ///
    /// # Errors
    /// As for `initial`.
    fn merge(&mut self, acc: &mut Self::Acc, later: &Self::Acc) -> Result<(), Self::Error>;
    /// Returns the result. The accumulator is not used afterwards, unless `bounds.early`.
    ///
    /// # Errors
    /// As for `initial`.
    fn result(&mut self, acc: &mut Self::Acc, bounds: Bounds) -> Result<Self::Out, Self::Error>;
    /// Returns the result, or `None` if nothing remains of the items. Windows call this; the default is `result`.
    ///
    /// # Errors
    /// As for `initial`.
    #[doc(hidden)] // For the other crates of Millstream.
    fn result_of_any(
        &mut self,
        acc: &mut Self::Acc,
        bounds: Bounds,
    ) -> Result<Option<Self::Out>, Self::Error> {
        self.result(acc, bounds).map(Some)
    }
    /// Called when `add` has failed while a result was made of items in order, `early` or at the end: refuses that
    /// item and returns, or fails the window. The default fails it.
    ///
    /// # Errors
    /// The same error.
    #[doc(hidden)] // For the other crates of Millstream.
    fn refuse(&mut self, error: Self::Error, early: bool) -> Result<(), Self::Error> {
        let _ = early;
        Err(error)
    }
    /// Takes an item that was refused while a result was made, with its error.
    #[doc(hidden)] // For the other crates of Millstream.
    fn take_refused(&mut self) -> Option<(Self::In, Self::Error)> {
        None
    }
    /// Whether an accumulator grows with its items: the parts of a window are then not worth keeping.
    #[doc(hidden)] // For the other crates of Millstream.
    fn grows(&self) -> bool {
        false
    }
    /// Returns the codec of accumulators. The default is the announced codec of their type.
    ///
    /// # Errors
    /// A type that cannot be saved.
    #[doc(hidden)] // For the other crates of Millstream.
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::Acc>, Cause> {
        Ok(Box::new(codecs.get::<Self::Acc>()?))
    }
    /// Returns the codec of items, for windows that sort them. The default is the announced codec of their
    /// type.
    ///
    /// # Errors
    /// A type that cannot be saved.
    #[doc(hidden)] // For the other crates of Millstream.
    fn item_codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::In>, Cause> {
        Ok(Box::new(codecs.get::<Self::In>()?))
    }
}

/// A function that all workers share.
type Add<A, V> = Arc<dyn Fn(&mut A, V) + Send + Sync>;
type Merge<A> = Arc<dyn Fn(&mut A, &A) + Send + Sync>;
type Read<A, R> = Arc<dyn Fn(&mut A, bool) -> R + Send + Sync>;

/// The built-in aggregates: functions that cannot fail.
struct Plain<V, A, R> {
    initial: Arc<dyn Fn() -> A + Send + Sync>,
    add: Add<A, V>,
    merge: Merge<A>,
    result: Read<A, R>,
    grows: bool,
}

impl<V, A, R> Clone for Plain<V, A, R> {
    fn clone(&self) -> Self {
        Plain {
            initial: Arc::clone(&self.initial),
            add: Arc::clone(&self.add),
            merge: Arc::clone(&self.merge),
            result: Arc::clone(&self.result),
            grows: self.grows,
        }
    }
}

impl<V, A: Clone + Send + Sync + 'static, R> Plain<V, A, R> {
    fn new(
        initial: A,
        add: impl Fn(&mut A, V) + Send + Sync + 'static,
        merge: impl Fn(&mut A, &A) + Send + Sync + 'static,
        result: impl Fn(&mut A, bool) -> R + Send + Sync + 'static,
    ) -> Self {
        Plain {
            initial: Arc::new(move || initial.clone()),
            add: Arc::new(add),
            merge: Arc::new(merge),
            result: Arc::new(result),
            grows: false,
        }
    }
}

impl<V: 'static, A: 'static, R: 'static> Aggregate for Plain<V, A, R> {
    type In = V;
    type Acc = A;
    type Out = Windowed<R>;
    type Error = Cause;
    fn initial(&mut self) -> Result<A, Cause> {
        Ok((self.initial)())
    }
    fn add(&mut self, acc: &mut A, value: V) -> Result<(), Cause> {
        (self.add)(acc, value);
        Ok(())
    }
    fn merge(&mut self, acc: &mut A, later: &A) -> Result<(), Cause> {
        (self.merge)(acc, later);
        Ok(())
    }
    fn result(&mut self, acc: &mut A, bounds: Bounds) -> Result<Windowed<R>, Cause> {
        Ok(Windowed::new(bounds, (self.result)(acc, bounds.early)))
    }
    fn grows(&self) -> bool {
        self.grows
    }
}

/// Counts the values.
#[derive(Clone)]
struct Count<V>(PhantomData<fn(V)>);

impl<V: 'static> Aggregate for Count<V> {
    type In = V;
    type Acc = u64;
    type Out = Windowed<u64>;
    type Error = Cause;
    fn initial(&mut self) -> Result<u64, Cause> {
        Ok(0)
    }
    fn add(&mut self, acc: &mut u64, _: V) -> Result<(), Cause> {
        *acc += 1;
        Ok(())
    }
    fn merge(&mut self, acc: &mut u64, later: &u64) -> Result<(), Cause> {
        *acc += later;
        Ok(())
    }
    fn result(&mut self, acc: &mut u64, bounds: Bounds) -> Result<Windowed<u64>, Cause> {
        Ok(Windowed::new(bounds, *acc))
    }
}

/// Combines the values by a function.
struct Reduce<V, F> {
    f: Arc<F>,
    types: PhantomData<fn(V)>,
}

impl<V, F> Clone for Reduce<V, F> {
    fn clone(&self) -> Self {
        Reduce {
            f: Arc::clone(&self.f),
            types: PhantomData,
        }
    }
}

impl<V, F> Aggregate for Reduce<V, F>
where
    V: Data,
    F: Fn(V, V) -> V + Send + Sync + 'static,
{
    type In = V;
    type Acc = Option<V>;
    type Out = Windowed<V>;
    type Error = Cause;
    fn initial(&mut self) -> Result<Option<V>, Cause> {
        Ok(None)
    }
    fn add(&mut self, acc: &mut Option<V>, value: V) -> Result<(), Cause> {
        *acc = Some(match acc.take() {
            Some(before) => (self.f)(before, value),
            None => value,
        });
        Ok(())
    }
    fn merge(&mut self, acc: &mut Option<V>, later: &Option<V>) -> Result<(), Cause> {
        match later.clone() {
            Some(later) => self.add(acc, later),
            None => Ok(()),
        }
    }
    fn result(&mut self, acc: &mut Option<V>, bounds: Bounds) -> Result<Windowed<V>, Cause> {
        let value = acc.clone().ok_or("a window without items was closed")?;
        Ok(Windowed::new(bounds, value))
    }
}

/// The outputs of a built-in aggregate.
type Built<K, V, R> = Outcome<K, V, Windowed<R>>;

impl<K: Key, V: Data + Sync> Windows<K, V> {
    fn plain<A: Data + Sync, R: Data>(
        &self,
        initial: A,
        add: impl Fn(&mut A, V) + Send + Sync + 'static,
        merge: impl Fn(&mut A, &A) + Send + Sync + 'static,
        result: impl Fn(&mut A, bool) -> R + Send + Sync + 'static,
    ) -> Built<K, V, R> {
        self.aggregate(Plain::new(initial, add, merge, result))
    }

    /// Folds the values with `add(acc, value)` from `init`. `merge(acc, later)` joins the accumulators of parts
    /// of a window: panes of sliding windows, and sessions that are merged. With recovery the type of the
    /// accumulator must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.fold(1, |product, n: i64| *product *= n, |product, later| *product *= later).results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 14]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn fold<A: Data + Sync>(
        &self,
        init: A,
        add: impl Fn(&mut A, V) + Send + Sync + 'static,
        merge: impl Fn(&mut A, &A) + Send + Sync + 'static,
    ) -> Built<K, V, A> {
        self.detailed("fold", self.plain(init, add, merge, |acc, _| acc.clone()))
    }

    /// Combines the values by `f`, for which the order of the calls must not matter.
    ///
    /// With recovery the type of the values must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.reduce(|a: i64, b| a * b).results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 14]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn reduce(&self, f: impl Fn(V, V) -> V + Send + Sync + 'static) -> Built<K, V, V> {
        let reduced = self.aggregate(Reduce {
            f: Arc::new(f),
            types: PhantomData,
        });
        self.detailed("reduce", reduced)
    }

    /// Collects all values, in the order of arrival.
    ///
    /// With recovery the type of the values must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.collect().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [vec![1, 2], vec![14]]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn collect(&self) -> Built<K, V, Vec<V>> {
        let collected = Plain::new(
            Vec::new(),
            |acc: &mut Vec<V>, value| acc.push(value),
            |acc, later: &Vec<V>| acc.extend_from_slice(later),
            |acc, early| {
                if early {
                    acc.clone()
                } else {
                    std::mem::take(acc)
                }
            },
        );
        let collected = self.aggregate(Plain {
            grows: true,
            ..collected
        });
        self.detailed("collect", collected)
    }

    /// Counts the values.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.count().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn count(&self) -> Built<K, V, u64> {
        self.detailed("count", self.aggregate(Count(PhantomData)))
    }

    /// Sums the values.
    ///
    /// With recovery the type of the values must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.sum().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [3, 14]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn sum(&self) -> Built<K, V, V>
    where
        V: AddAssign,
    {
        let sums = self.reduce(|mut sum, value| {
            sum += value;
            sum
        });
        self.detailed("sum", sums)
    }

    /// Returns the least of the values; the earlier of two equal ones.
    ///
    /// With recovery the type of the values must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.min().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 14]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn min(&self) -> Built<K, V, V>
    where
        V: PartialOrd,
    {
        self.detailed("min", self.reduce(|a, b| if b < a { b } else { a }))
    }

    /// Returns the greatest of the values; the earlier of two equal ones.
    ///
    /// With recovery the type of the values must be [announced](crate::Flow::saves).
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.max().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 14]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn max(&self) -> Built<K, V, V>
    where
        V: PartialOrd,
    {
        self.detailed("max", self.reduce(|a, b| if b > a { b } else { a }))
    }

    /// Returns the mean of the values.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all")
    ///     .map(|timed| timed.map(|n| n as f64));
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.mean().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1.5, 14.0]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn mean(&self) -> Built<K, V, f64>
    where
        V: Into<f64>,
    {
        let means = self.plain(
            (0.0, 0u64),
            |acc: &mut (f64, u64), value: V| {
                acc.0 += value.into();
                acc.1 += 1;
            },
            |acc, later: &(f64, u64)| {
                acc.0 += later.0;
                acc.1 += later.1;
            },
            |acc, _| acc.0 / acc.1 as f64,
        );
        self.detailed("mean", means)
    }
}
