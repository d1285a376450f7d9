//! `enrich_cached`: pairs each item with the answer to a question, and caches answers.
//!
//! Invariant: an answer is valid for `ttl` after it was received; if it cannot be renewed, it is valid for
//! `stale` longer. A cache has at most `size` answers, and evicts the least recently used. Each worker has its
//! own cache, which is not saved.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Data;
use crate::clock::Clock;
use crate::describe::stream::Stream;
use crate::error::{Cause, Failure, FlowError};
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::operators::verbs::Fallible;
use crate::policy::{OnError, Policy};
use crate::step::Context;
use crate::time::{NEVER, nanos};

/// Options of the cache, and the policy for items without an answer.
#[derive(Clone)]
pub struct Lookups {
    ttl: i64,
    size: usize,
    stale: i64,
    retry: i64,
    on_error: OnError,
}

impl Default for Lookups {
    /// 10,000 answers on each worker, which do not expire.
    fn default() -> Self {
        Lookups {
            ttl: NEVER,
            size: 10_000,
            stale: 0,
            retry: nanos(Duration::from_secs(1)),
            on_error: OnError::Fail,
        }
    }
}

impl Lookups {
    /// Sets how long an answer is valid, by the clock of the run.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = nanos(ttl);
        self
    }
    /// Sets the number of answers that each worker caches, at least 1; the least recently used is evicted.
    #[must_use]
    pub fn size(mut self, size: usize) -> Self {
        self.size = size.max(1);
        self
    }
    /// Sets how much longer than `ttl` an answer is valid while it cannot be renewed. After that the item
    /// fails.
    #[must_use]
    pub fn stale(mut self, stale: Duration) -> Self {
        self.stale = nanos(stale);
        self
    }
    /// Sets the time after a failure before an answer that is still valid is requested again. The default is
    /// one second.
    #[must_use]
    pub fn retry(mut self, retry: Duration) -> Self {
        self.retry = nanos(retry);
        self
    }
    /// Sets the policy for an item without an answer. The default is [`OnError::Fail`].
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}

/// A cached answer.
struct Known<A> {
    answer: A,
    given: i64,
    /// The time from which it is renewed.
    until: i64,
    /// The number of its last use.
    used: u64,
}

/// The cache of one worker.
struct Cache<Q, A> {
    options: Lookups,
    clock: Arc<dyn Clock>,
    known: HashMap<Q, Known<A>>,
    /// The questions in the order of the last use of their answers.
    order: BTreeMap<u64, Q>,
    uses: u64,
}

impl<Q: Hash + Eq + Clone, A: Clone> Cache<Q, A> {
    fn new(options: Lookups, clock: Arc<dyn Clock>) -> Self {
        Cache {
            options,
            clock,
            known: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    fn answer<E>(&mut self, question: Q, request: impl FnOnce(&Q) -> Result<A, E>) -> Result<A, E> {
        let now = self.clock.time_ns();
        let serves = |known: &&Known<A>| now < known.until;
        if let Some(answer) = self
            .known
            .get(&question)
            .filter(serves)
            .map(|known| known.answer.clone())
        {
            self.touch(&question);
            return Ok(answer);
        }
        match request(&question) {
            Ok(answer) => {
                let until = now.saturating_add(self.options.ttl);
                self.keep(
                    question,
                    Known {
                        answer: answer.clone(),
                        given: now,
                        until,
                        used: 0,
                    },
                );
                Ok(answer)
            }
            Err(error) => self.stale(&question, now).ok_or(error),
        }
    }

    /// Returns an answer that is valid beyond its `ttl` because it cannot be renewed; removes it if it is not.
    fn stale(&mut self, question: &Q, now: i64) -> Option<A> {
        let known = self.known.get_mut(question)?;
        let ends = known
            .given
            .saturating_add(self.options.ttl)
            .saturating_add(self.options.stale);
        if now >= ends {
            let known = self.known.remove(question)?;
            self.order.remove(&known.used);
            return None;
        }
        known.until = now.saturating_add(self.options.retry);
        let answer = known.answer.clone();
        self.touch(question);
        Some(answer)
    }

    fn touch(&mut self, question: &Q) {
        self.uses += 1;
        if let Some(known) = self.known.get_mut(question) {
            self.order.remove(&known.used);
            known.used = self.uses;
            self.order.insert(self.uses, question.clone());
        }
    }

    fn keep(&mut self, question: Q, known: Known<A>) {
        if let Some(before) = self.known.insert(question.clone(), known) {
            self.order.remove(&before.used);
        }
        self.touch(&question);
        if self.known.len() > self.options.size
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Applies the policy to an item without an answer.
type ApplyPolicy<T> = fn(&mut Policy, &T, Cause, &mut Context) -> Result<(), Failure>;

/// Adds the step: `question` makes the question of an item, and `give` makes the output from item and answer.
fn answered<T: Data, Q, A, E, O: Data>(
    stream: &Stream<T>,
    name: &str,
    lookups: Lookups,
    question: impl Fn(&T) -> Q + Send + Sync + 'static,
    f: impl Fn(&Q) -> Result<A, E> + Send + Sync + 'static,
    apply_policy: ApplyPolicy<T>,
    give: fn(T, A) -> O,
) -> Stream<O>
where
    Q: Hash + Eq + Clone + 'static,
    A: Data,
    E: Into<Cause>,
{
    let both = Arc::new((question, f));
    let on_error = lookups.on_error.clone();
    let made = stream.step(
        "enrich_cached",
        name,
        move |making| -> Result<_, FlowError> {
            let both = Arc::clone(&both);
            let mut cache = Cache::new(lookups.clone(), Arc::clone(&making.clock));
            let work = move |input: &mut Vec<T>,
                             output: &mut Vec<O>,
                             policy: &mut Policy,
                             cx: &mut Context| {
                for item in input.drain(..) {
                    match cache.answer((both.0)(&item), &both.1) {
                        Ok(answer) => output.push(give(item, answer)),
                        Err(error) => apply_policy(policy, &item, error.into(), cx)?,
                    }
                }
                Ok(())
            };
            Ok(Fallible {
                work,
                policy: making.policy(&lookups.on_error)?,
            })
        },
    );
    made.settles_by(&on_error)
}

impl<T: Data + Debug> Stream<T> {
    /// Pairs each item with the answer of `f` to the question that `key` returns for it. Answers are cached as
    /// `lookups` defines: `f` is called once for many items with the same question. It runs on the thread of
    /// the worker, which waits for it.
    ///
    /// ```
    /// use millstream_flow::Lookups;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("prices"), testing::Collected::new());
    /// let price = |symbol: &&str| Ok::<_, String>(symbol.len() as u32);
    /// flow.source("orders", testing::items([("tea", 2), ("rum", 1), ("tea", 5)]))
    ///     .enrich_cached("price", Lookups::default(), |order| order.0, price)
    ///     .map(|(order, price)| (order.0, order.1 * price))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("tea", 6), ("rum", 3), ("tea", 15)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn enrich_cached<Q, A, E>(
        &self,
        name: &str,
        lookups: Lookups,
        key: impl Fn(&T) -> Q + Send + Sync + 'static,
        f: impl Fn(&Q) -> Result<A, E> + Send + Sync + 'static,
    ) -> Stream<(T, A)>
    where
        Q: Hash + Eq + Clone + 'static,
        A: Data,
        E: Into<Cause>,
    {
        let apply_policy = |policy: &mut Policy, item: &T, error: Cause, cx: &mut Context| {
            policy.apply_to_item(None, item, error, cx)
        };
        answered(self, name, lookups, key, f, apply_policy, |item, answer| {
            (item, answer)
        })
    }
}

impl<K: Key, V: Data + Debug> KeyedStream<K, V> {
    /// Pairs each value with the answer of `f` to the question that `key` makes of it.
    ///
    /// As [`Stream::enrich_cached`]: answers are kept as `lookups` says, on each worker its own.
    ///
    /// ```
    /// use millstream_flow::Lookups;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("lengths"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .map(|n: i64| "x".repeat(n as usize))
    ///     .enrich_cached("length", Lookups::default(), String::clone, |text| Ok::<_, String>(text.len()))
    ///     .map(|(_text, length)| length)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 1), ("b", 2), ("a", 3)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn enrich_cached<Q, A, E>(
        &self,
        name: &str,
        lookups: Lookups,
        key: impl Fn(&V) -> Q + Send + Sync + 'static,
        f: impl Fn(&Q) -> Result<A, E> + Send + Sync + 'static,
    ) -> KeyedStream<K, (V, A)>
    where
        Q: Hash + Eq + Clone + 'static,
        A: Data,
        E: Into<Cause>,
    {
        let apply_policy = |policy: &mut Policy, item: &(K, V), error: Cause, cx: &mut Context| {
            policy.apply_to_item(Some(&item.0), &item.1, error, cx)
        };
        let question = move |item: &(K, V)| key(&item.1);
        let give = |(key, value), answer| (key, (value, answer));
        self.with(answered(
            &self.joined(),
            name,
            lookups,
            question,
            f,
            apply_policy,
            give,
        ))
    }
}
