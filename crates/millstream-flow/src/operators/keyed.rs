//! Keyed streams: each item beside its key, and the steps that keep state for each key.
//!
//! A key belongs to one of 256 shards and a shard to one worker (see [`key`](crate::key)), so
//! that all items of a key meet the same state, in the order in which their source gave them.
//! Items change the worker once, just before the first step that keeps state.
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

use std::fmt::Debug;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Data, key_and_value, timed};
use crate::describe::stream::{Making, Pipe, Stream};
use crate::error::{Cause, Failure, FlowError};
use crate::key::{Key, shard, worker_of};
use crate::operators::verbs::each;
use crate::policy::{OnError, Policy};
use crate::run::build::Route;
use crate::run::control::lock;
use crate::state::codec::Rule;
use crate::state::{ByLogic, KeyLogic, KeyedStep, Logic, Plain, Ttl};
use crate::step::{Context, Stateful, Step};
use crate::time::{Timed, nanos};

/// When an aggregate gives its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Once for each key, when all input has ended; keys in the order of their first item.
    End,
    /// After each item.
    Each,
}

/// A stream whose items have a key beside them.
#[derive(Clone)]
pub struct KeyedStream<K, V> {
    /// The streams it is made of; several until they are brought together.
    pub(crate) parts: Vec<Stream<(K, V)>>,
    /// True when each item is on the worker of its key.
    placed: bool,
}

/// Sends each item to the worker of its key.
struct ByKey;

impl<K: Key, V: Data> Route<Vec<(K, V)>> for ByKey {
    fn route(&mut self, batch: &mut Vec<(K, V)>, parts: &mut [Vec<(K, V)>]) -> Result<(), Failure> {
        let workers = parts.len();
        for item in batch.drain(..) {
            parts[worker_of(shard(item.0.stable_hash()), workers)].push(item);
        }
        Ok(())
    }
}

impl<T: Data> Stream<T> {
    /// Gives each item a key; the items themselves stay as they are.
    pub fn key_by<K: Key>(&self, f: impl Fn(&T) -> K + Send + Sync + 'static) -> KeyedStream<K, T> {
        let keyed = each(self, "key_by", move |input: &mut Vec<T>, output| {
            output.extend(input.drain(..).map(|item| (f(&item), item)));
        });
        KeyedStream {
            parts: vec![keyed],
            placed: false,
        }
    }
}

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// States how the items of a type become bytes that is made of other types.
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
        KeyedStream {
            parts: vec![stream],
            placed: self.placed || self.parts.len() > 1,
        }
    }

    /// Names the last step; of streams that were merged, the exchange in which they come together.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let (stream, placed) = match self.parts.as_slice() {
            [only] => (only.clone(), self.placed),
            _ => (self.placed(), true),
        };
        KeyedStream {
            parts: vec![stream.named(name)],
            placed,
        }
    }

    /// One value out for each value in.
    pub fn map<U: Data>(&self, f: impl Fn(V) -> U + Send + Sync + 'static) -> KeyedStream<K, U> {
        self.with(each(
            &self.joined(),
            "map",
            move |input: &mut Vec<(K, V)>, output| {
                output.extend(input.drain(..).map(|(key, value)| (key, f(value))));
            },
        ))
    }

    /// The values for which `f` is true.
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

    /// Any number of values out for each value in.
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

    /// At most one value out for each value in.
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

    /// A whole batch of keys and values at once.
    pub fn map_batch<U: Data>(
        &self,
        f: impl Fn(Vec<(K, V)>) -> Vec<(K, U)> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        self.with(each(&self.joined(), "map_batch", move |input, output| {
            *output = f(std::mem::take(input));
        }))
    }

    /// Looks at each key and value on its way.
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

    /// Two streams: the values for which `f` is true, and the others. What nobody reads of one of them
    /// is dropped.
    #[must_use]
    pub fn branch(&self, f: impl Fn(&V) -> bool + Send + Sync + 'static) -> (Self, Self) {
        let (yes, no) = self.joined().branch(move |(_, value)| f(value));
        (self.with(yes), self.with(no))
    }

    /// This stream and others as one. Order is kept within each of them.
    #[must_use]
    pub fn merge(&self, others: &[KeyedStream<K, V>]) -> KeyedStream<K, V> {
        let mut all = vec![self];
        all.extend(others);
        if all.iter().any(|stream| stream.placed) {
            self.derive(key_and_value::<K, V>);
            let parts: Vec<_> = all.iter().map(|stream| stream.placed()).collect();
            return KeyedStream {
                parts: vec![parts[0].merge(&parts[1..])],
                placed: true,
            };
        }
        let parts = all
            .iter()
            .flat_map(|stream| stream.parts.iter().cloned())
            .collect();
        KeyedStream {
            parts,
            placed: false,
        }
    }

    /// Keys and values as pairs.
    #[must_use]
    pub fn items(&self) -> Stream<(K, V)> {
        self.derive(key_and_value::<K, V>);
        self.joined()
    }

    /// The values without their keys.
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

    /// Joins a step that keeps state which belongs to no key: with another number of workers items may come out of it on other
    /// workers than those of their keys.
    pub(crate) fn keep_anywhere<U: Data, S: Step<Vec<(K, V)>, Vec<(K, U)>>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn(&Making<'_>) -> Result<S, FlowError> + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let joined = self.joined();
        lock(&joined.graph).demand_name(kind, name);
        KeyedStream {
            parts: vec![joined.step(kind, name, make)],
            placed: false,
        }
    }

    /// Announces where the dead letters of the step go that this stream comes out of.
    pub(crate) fn settles_by(self, on_error: &OnError) -> Self {
        let parts = self.parts.into_iter();
        KeyedStream {
            parts: parts.map(|part| part.settles_by(on_error)).collect(),
            placed: self.placed,
        }
    }

    /// Joins a step that keeps state for each key.
    pub(crate) fn keep<U: Data, S: Step<Vec<(K, V)>, Vec<(K, U)>>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let placed = self.placed();
        lock(&placed.graph).demand_name(kind, name);
        KeyedStream {
            parts: vec![placed.step(kind, name, move |_| Ok(make()))],
            placed: true,
        }
    }

    /// A function `(state, key, value)` with a state for each key, made by `init` at its first item.
    ///
    /// `f` gives any number of outputs: an `Option`, a `Vec`, an array.
    pub fn stateful<S: Send + 'static, U: Data, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        init: impl Fn(&K) -> S + Send + Sync + 'static,
        f: impl Fn(&mut S, &K, V) -> I + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let (init, f) = (Arc::new(init), Arc::new(f));
        self.keep("stateful", name, move || {
            let (init, f) = (Arc::clone(&init), Arc::clone(&f));
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
        })
    }

    /// A [`Logic`] for each key, made by `make` at the key's first item. Its timers are in processing
    /// time. A key that has had no item for `ttl` of processing time is forgotten.
    pub fn stateful_with<L: Logic<K, V>>(
        &self,
        name: &str,
        ttl: Option<Duration>,
        make: impl Fn(&K) -> L + Send + Sync + 'static,
    ) -> KeyedStream<K, L::Out> {
        let (make, called) = (Arc::new(make), name.to_owned());
        let ttl = ttl.map(|ttl| Ttl::Processing(nanos(ttl)));
        self.keep("stateful", name, move || {
            let make = Arc::clone(&make);
            let logic = ByLogic::new(move |key: &K| make(key), ttl);
            KeyedStep::new(&called, true, logic)
        })
    }

    /// As `stateful`, with a function that may fail. The state keeps what the function did to it
    /// before it failed.
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
        let (init, f, settles) = (Arc::new(init), Arc::new(f), on_error.clone());
        let placed = self.placed();
        lock(&placed.graph).demand_name("stateful", name);
        let stream = placed.step("stateful", name, move |making| {
            let (init, f) = (Arc::clone(&init), Arc::clone(&f));
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
        KeyedStream {
            parts: vec![stream.settles_by(&settles)],
            placed: true,
        }
    }

    /// `acc = f(acc, value)` for each key, from `init`.
    pub fn fold<A: Data + Sync>(
        &self,
        name: &str,
        emit: Emit,
        init: A,
        f: impl Fn(&mut A, V) + Send + Sync + 'static,
    ) -> KeyedStream<K, A> {
        let read = |acc: &A| Some(acc.clone());
        self.aggregate("fold", name, emit, move |_| init.clone(), f, read)
    }

    /// The first value of each key, combined with the later ones by `f`.
    pub fn reduce(
        &self,
        name: &str,
        emit: Emit,
        f: impl Fn(V, V) -> V + Send + Sync + 'static,
    ) -> KeyedStream<K, V> {
        self.combine("reduce", name, emit, f)
    }

    /// How many values each key has. Named `count` unless renamed with `named`.
    #[must_use]
    pub fn count(&self, emit: Emit) -> KeyedStream<K, u64> {
        let add = |count: &mut u64, _| *count += 1;
        self.aggregate("count", "count", emit, |_| 0, add, |count| Some(*count))
    }

    /// The sum of each key's values.
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

    /// The least of each key's values; the earlier of two equal ones.
    #[must_use]
    pub fn min(&self, emit: Emit) -> KeyedStream<K, V>
    where
        V: PartialOrd,
    {
        self.combine("min", "min", emit, |a, b| if b < a { b } else { a })
    }

    /// The greatest of each key's values; the earlier of two equal ones.
    #[must_use]
    pub fn max(&self, emit: Emit) -> KeyedStream<K, V>
    where
        V: PartialOrd,
    {
        self.combine("max", "max", emit, |a, b| if b > a { b } else { a })
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
        let (init, f) = (Arc::new(init), Arc::new(f));
        self.keep(kind, name, move || {
            let (init, f) = (Arc::clone(&init), Arc::clone(&f));
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

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// A [`Logic`] for each key, made by `make` at the key's first item. Its timers are in event time
    /// or in processing time. A key is forgotten once event time has gone on by `ttl` since its latest
    /// item.
    pub fn stateful_timed<L: Logic<K, V>>(
        &self,
        name: &str,
        ttl: Option<Duration>,
        make: impl Fn(&K) -> L + Send + Sync + 'static,
    ) -> KeyedStream<K, Timed<L::Out>> {
        let (make, called) = (Arc::new(make), name.to_owned());
        let ttl = ttl.map(|ttl| Ttl::Event(nanos(ttl)));
        let (outputs, _) = self.keep_timed("stateful", name, move || {
            let make = Arc::clone(&make);
            let logic = ByLogic::new(move |key: &K| make(key), ttl);
            KeyedStep::new(&called, true, logic)
        });
        outputs
    }

    /// Joins a step that keeps state for each key and knows time: its outputs, and what came late.
    pub(crate) fn keep_timed<U, L>(
        &self,
        kind: &'static str,
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
        let (outputs, late) = placed.step(kind, name, move |_| Ok(make())).halves();
        let keyed = |part| KeyedStream {
            parts: vec![part],
            placed: true,
        };
        (
            keyed(outputs),
            KeyedStream {
                parts: vec![late],
                placed: true,
            },
        )
    }
}

/// A step with a state for each key.
struct PlainStep<K, S, I, F, E> {
    states: Plain<K, S>,
    init: I,
    on_item: F,
    on_end: E,
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
        _: &mut Context,
    ) -> Result<(), Failure> {
        for (key, value) in input.drain(..) {
            let state = self.states.touch(&key, &self.init);
            (self.on_item)(state, &key, value, output);
        }
        Ok(())
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
        for (key, value) in input.drain(..) {
            let state = self.states.touch(&key, &self.init);
            if let Err(error) = (self.on_item)(state, &key, &value, output) {
                self.policy.apply_to_item(Some(&key), &value, error, cx)?;
            }
        }
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(&mut self.states)
    }
}
