//! Steps with a state for each key: `stateful` and its forms.
//!
//! ```
//! use millstream_flow::{Flow, Options, testing};
//!
//! let (flow, out) = (Flow::new("changes"), testing::Collected::new());
//! flow.source("prices", testing::items([("tea", 3), ("rum", 9), ("tea", 5)]))
//!     .key_by(|price: &(&str, i64)| price.0)
//!     .stateful("change", |_key| None, |last: &mut Option<i64>, _key, (_, price)| {
//!         last.replace(price).map(|before| price - before)
//!     })
//!     .items()
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("tea", 2)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Data;
use crate::error::{Cause, Failure};
use crate::key::Key;
use crate::operators::keyed::{KeyedStream, Untimed};
use crate::operators::misplaced::needs_keys;
use crate::operators::window::Outcome;
use crate::policy::{OnError, Policy};
use crate::state::{ByLogic, InTurn, KeyedStep, Logic, Plain, Ttl};
use crate::step::{Context, Stateful, Step};
use crate::time::{Timed, nanos};

needs_keys!(
    stateful_with<M>(&str, Option<Duration>, M);
    stateful_in_order<M>(&str, Option<Duration>, M);
    stateful<S, I>(&str, impl Fn(&T) -> S, impl Fn(&mut S, &T, T) -> I);
);

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// Calls `f` with the state of the key, the key and the value, and passes on each item that it returns.
    ///
    /// The state of a key is made by `init` at the first value of the key. `name` is the name of the step in
    /// errors, metrics and saved state. With recovery the type of the state is
    /// [announced](crate::Flow::saves). `f` returns any number of outputs: an `Option`, a `Vec`, an array.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("running"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .stateful("sum", |_key| 0, |sum, _key, n: i64| {
    ///         *sum += n;
    ///         Some(*sum)
    ///     })
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 4)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn stateful<S: Send + 'static, U: Data, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        init: impl Fn(&K) -> S + Send + Sync + 'static,
        f: impl Fn(&mut S, &K, V) -> I + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let init = Arc::new(init);
        let f = Arc::new(f);
        let made = self.keep("stateful", name, move || {
            let init = Arc::clone(&init);
            let f = Arc::clone(&f);
            PlainStep {
                states: Plain::default(),
                init: move |key: &K| init(key),
                on_item: move |state: &mut S, key: &K, value: V, out: &mut Vec<(K, U)>| {
                    out.extend(
                        f(state, key, value)
                            .into_iter()
                            .map(|item| (key.clone(), item)),
                    );
                },
                on_end: |_: &mut S, _: &K, _: &mut Vec<(K, U)>| {},
            }
        });
        made.in_order()
    }

    /// As [`stateful`](Self::stateful), with a function that may fail.
    ///
    /// The state keeps what the function did to it before it failed. For a value on which `f` fails,
    /// `on_error` decides: the run fails, the value is skipped, or a dead letter is written.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{Flow, OnError, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("rising"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .try_stateful("rising", OnError::Skip, |_key| 0, |last, _key, n: &i64| {
    ///         if *n % 2 == 0 {
    ///             return Err("an even number");
    ///         }
    ///         *last += n;
    ///         Ok(Some(*last))
    ///     })
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("a", 4)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn try_stateful<S, U, I, E>(
        &self,
        name: &str,
        on_error: OnError,
        init: impl Fn(&K) -> S + Send + Sync + 'static,
        f: impl Fn(&mut S, &K, &V) -> Result<I, E> + Send + Sync + 'static,
    ) -> KeyedStream<K, U>
    where
        V: Debug,
        S: Send + 'static,
        U: Data,
        I: IntoIterator<Item = U>,
        E: Into<Cause>,
    {
        let init = Arc::new(init);
        let f = Arc::new(f);
        let settles = on_error.clone();
        let made = self.keep_with("stateful", name, move |making| {
            let init = Arc::clone(&init);
            let f = Arc::clone(&f);
            Ok(TryPlainStep {
                states: Plain::default(),
                init: move |key: &K| init(key),
                on_item: move |state: &mut S, key: &K, value: &V, out: &mut Vec<(K, U)>| {
                    let items = f(state, key, value).map_err(Into::into)?;
                    out.extend(items.into_iter().map(|item| (key.clone(), item)));
                    Ok(())
                },
                policy: making.policy(&on_error)?,
            })
        });
        made.in_order().settles_by(&settles)
    }
}

impl<K: Key, V: Data> Untimed<K, V> {
    /// Calls a [`Logic`] of each key, made by `make` at the first value of the key, which may set timers in
    /// processing time.
    ///
    /// On a stream with times the verb of this name is [`KeyedStream::stateful_with`], which follows event time. `name`
    /// is the name of the step in errors, metrics and saved state. A key that has had no value for `ttl` of processing
    /// time is removed; without `ttl` no key is. With recovery the type of the logic is
    /// [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty. A
    /// [`Timer::Event`](crate::Timer::Event) ends the run: without times it would never fire.
    ///
    /// ```
    /// use millstream_flow::{Flow, KeyContext, Logic, Options, testing};
    ///
    /// /// The last value of a key.
    /// struct Last(i64);
    /// impl Logic<&'static str, i64> for Last {
    ///     type Out = i64;
    ///     fn on_item(&mut self, _: &&'static str, n: i64, _: &mut KeyContext<'_, i64>) {
    ///         self.0 = n;
    ///     }
    ///     fn on_end(&mut self, _: &&'static str, cx: &mut KeyContext<'_, i64>) {
    ///         cx.emit(self.0);
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("last"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .stateful_with("last", None, |_key| Last(0))
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 3), ("b", 2)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn stateful_with<L: Logic<K, V>>(
        &self,
        name: &str,
        ttl: Option<Duration>,
        make: impl Fn(&K) -> L + Send + Sync + 'static,
    ) -> KeyedStream<K, L::Out> {
        let make = Arc::new(make);
        let called = name.to_owned();
        let ttl = ttl.map(|ttl| Ttl::Processing(nanos(ttl)));
        let made = self.keyed().keep("stateful", name, move || {
            let make = Arc::clone(&make);
            let logic = ByLogic::new(move |key: &K| make(key), ttl, false);
            KeyedStep::new(&called, true, logic)
        });
        made.in_order()
    }
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Calls a [`Logic`] of each key, made by `make` at the first value of the key, which may set timers in
    /// event time and in processing time.
    ///
    /// The logic gets the value; its time is [`KeyContext::time`](crate::KeyContext::time). `name` is the name of the
    /// step in errors, metrics and saved state. A key is removed once event time is `ttl` later than its latest item;
    /// without `ttl` no key is. An item waits for the timers that are due before it by the watermark of its partition,
    /// until other partitions have come as far. With recovery the types of the logic and of the items are
    /// [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{EventTime, Flow, KeyContext, Logic, Options, Timer, testing};
    ///
    /// /// Rings 5 ns after each item.
    /// struct Alarm;
    /// impl Logic<&'static str, i64> for Alarm {
    ///     type Out = i64;
    ///     fn on_item(&mut self, _: &&'static str, time: i64, cx: &mut KeyContext<'_, i64>) {
    ///         cx.set_timer(Timer::Event(time + 5));
    ///     }
    ///     fn on_timer(&mut self, _: &&'static str, _: Timer, cx: &mut KeyContext<'_, i64>) {
    ///         cx.emit(cx.time());
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("alarms"), testing::Collected::new());
    /// flow.source("in", testing::items([10, 12, 50]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all")
    ///     .stateful_with("alarm", None, |_key| Alarm)
    ///     .values()
    ///     .map(|alarm| alarm.value)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [15, 17]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn stateful_with<L: Logic<K, V>>(
        &self,
        name: &str,
        ttl: Option<Duration>,
        make: impl Fn(&K) -> L + Send + Sync + 'static,
    ) -> KeyedStream<K, Timed<L::Out>> {
        let make = Arc::new(make);
        let called = name.to_owned();
        let ttl = ttl.map(|ttl| Ttl::Event(nanos(ttl)));
        let (outputs, _) = self.keep_timed(("stateful", false), name, move || {
            let make = Arc::clone(&make);
            let logic = ByLogic::new(move |key: &K| make(key), ttl, true);
            KeyedStep::new(&called, true, InTurn::after_timers(logic, V::clone))
        });
        outputs
    }

    /// As [`stateful_with`](Self::stateful_with), and each key receives its items in the order of their times: an item
    /// waits until the watermark has passed it.
    ///
    /// The output is the same in every run, whichever partition, branch or merged stream was faster; only items of one
    /// time are processed in the order of arrival. The cost is delay, and memory for the items that wait. Items that
    /// are late go to `late`.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, KeyContext, Logic, Options, testing};
    ///
    /// /// Emits the time since the item before.
    /// struct Gap(i64);
    /// impl Logic<&'static str, i64> for Gap {
    ///     type Out = i64;
    ///     fn on_item(&mut self, _: &&'static str, time: i64, cx: &mut KeyContext<'_, i64>) {
    ///         cx.emit(time - self.0);
    ///         self.0 = time;
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("gaps"), testing::Collected::new());
    /// flow.source("in", testing::items([5, 3, 9]))
    ///     .event_time(|time: &i64| *time, EventTime::default().lateness(Duration::from_nanos(2)))
    ///     .key_by(|_| "all")
    ///     .stateful_in_order("gap", None, |_key| Gap(0))
    ///     .results
    ///     .values()
    ///     .map(|gap| gap.value)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [3, 2, 4]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn stateful_in_order<L: Logic<K, V>>(
        &self,
        name: &str,
        ttl: Option<Duration>,
        make: impl Fn(&K) -> L + Send + Sync + 'static,
    ) -> Outcome<K, V, L::Out> {
        let make = Arc::new(make);
        let called = name.to_owned();
        let ttl = ttl.map(|ttl| Ttl::Event(nanos(ttl)));
        let (results, late) = self.keep_timed(("stateful", true), name, move || {
            let make = Arc::clone(&make);
            let logic = ByLogic::new(move |key: &K| make(key), ttl, true);
            KeyedStep::new(&called, true, InTurn::by_time(logic, V::clone, |_| 0))
        });
        Outcome { results, late }
    }
}

/// A step with a state for each key.
pub(super) struct PlainStep<K, S, I, F, E> {
    pub(super) states: Plain<K, S>,
    pub(super) init: I,
    pub(super) on_item: F,
    pub(super) on_end: E,
}

impl<K, V, U, S, I, F, E> Step<Vec<(K, V)>, Vec<(K, U)>> for PlainStep<K, S, I, F, E>
where
    K: Key,
    V: Data,
    U: Data,
    S: 'static,
    I: Fn(&K) -> S + 'static,
    F: Fn(&mut S, &K, V, &mut Vec<(K, U)>) + 'static,
    E: Fn(&mut S, &K, &mut Vec<(K, U)>) + 'static,
{
    fn apply(
        &mut self,
        input: &mut Vec<(K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.states.begin(cx);
        for (key, value) in input.drain(..) {
            let state = self.states.touch(&key, &self.init);
            (self.on_item)(state, &key, value, output);
        }
        self.states.check_hashes(cx)
    }
    fn end(&mut self, output: &mut Vec<(K, U)>, _: &mut Context) -> Result<(), Failure> {
        self.states
            .for_each(|key, state| (self.on_end)(state, key, output));
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(&mut self.states)
    }
}

/// A step with a state for each key and a function that may fail.
struct TryPlainStep<K, S, I, F> {
    states: Plain<K, S>,
    init: I,
    on_item: F,
    policy: Policy,
}

impl<K, V, U, S, I, F> Step<Vec<(K, V)>, Vec<(K, U)>> for TryPlainStep<K, S, I, F>
where
    K: Key,
    V: Data + Debug,
    U: Data,
    S: 'static,
    I: Fn(&K) -> S + 'static,
    F: Fn(&mut S, &K, &V, &mut Vec<(K, U)>) -> Result<(), Cause> + 'static,
{
    fn apply(
        &mut self,
        input: &mut Vec<(K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.states.begin(cx);
        for (key, value) in input.drain(..) {
            let state = self.states.touch(&key, &self.init);
            if let Err(error) = (self.on_item)(state, &key, &value, output) {
                self.policy.apply_to_item(Some(&key), &value, error, cx)?;
            }
        }
        self.states.check_hashes(cx)
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(&mut self.states)
    }
}
