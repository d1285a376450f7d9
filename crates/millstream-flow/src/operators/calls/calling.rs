//! The calls of one worker: which are under way, whose answers may be sent on, what is saved of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::options::Calls;
use super::runtime::{Answer, Asked, Desk};
use crate::batch::Data;
use crate::checkpoint::{Changes, Codec, OfWorker, Restore, pack};
use crate::describe::stream::Making;
use crate::error::{Cause, Failure, FlowError};
use crate::key::Key;
use crate::policy::Policy;
use crate::step::{Context, Stateful};

/// How long a worker sleeps while calls are on their way, unless something else wakes it; nanoseconds.
const LOOK_AGAIN_NS: i64 = 1_000_000;

/// What stands beside a value on its way: its key, or nothing.
pub(super) trait Beside: Data {
    fn save(&self, out: &mut Vec<u8>);
    fn load(from: &mut &[u8]) -> Option<Self>;
    fn shown(&self) -> Option<&dyn Debug>;
}

impl Beside for () {
    fn save(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = rmp::encode::write_nil(out);
    }
    fn load(from: &mut &[u8]) -> Option<Self> {
        rmp::decode::read_nil(from).ok()
    }
    fn shown(&self) -> Option<&dyn Debug> {
        None
    }
}

impl<K: Key> Beside for K {
    fn save(&self, out: &mut Vec<u8>) {
        Key::save(self, out);
    }
    fn load(from: &mut &[u8]) -> Option<Self> {
        Key::load(from)
    }
    fn shown(&self) -> Option<&dyn Debug> {
        Some(self)
    }
}

/// The calls of one worker.
pub(super) struct Calling<K, V, U, F> {
    f: Arc<F>,
    calls: Arc<Calls>,
    desk: Desk<U>,
    pub(super) policy: Policy,
    /// What has been taken and not given, by the number of the call.
    under_way: BTreeMap<u64, (K, V, Asked)>,
    /// Answers that wait for those before them.
    early: BTreeMap<u64, Answer<U>>,
    /// The number of the next call.
    next: u64,
    /// What waited at the commit that the run resumes from.
    again: Vec<(K, V)>,
    codec: Option<Codec<V>>,
    saved: OfWorker,
}

impl<K, V, U, F, Fut, E> Calling<K, V, U, F>
where
    K: Beside,
    V: Data + Debug,
    U: Send + 'static,
    F: Fn(V) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, E>> + Send,
    E: Into<Cause>,
{
    pub(super) fn make(
        calls: &Arc<Calls>,
        f: &Arc<F>,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let desk = Desk::open(calls.runtime.as_ref());
        let desk = desk.map_err(|error| Failure::new(making.info.name.clone(), error))?;
        Ok(Calling {
            f: Arc::clone(f),
            calls: Arc::clone(calls),
            desk,
            policy: making.policy(&calls.on_error)?,
            under_way: BTreeMap::new(),
            early: BTreeMap::new(),
            next: 0,
            again: Vec::new(),
            codec: None,
            saved: OfWorker::new(making.worker),
        })
    }

    /// Begins calls, each as soon as there is room for one more.
    fn take(
        &mut self,
        items: impl IntoIterator<Item = (K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let again = std::mem::take(&mut self.again);
        for (key, value) in again.into_iter().chain(items) {
            self.give(self.calls.concurrency - 1, output, cx)?;
            let (f, item, calls) = (Arc::clone(&self.f), value.clone(), Arc::clone(&self.calls));
            let asked = self
                .desk
                .ask(self.next, async move { answer(&*f, item, &calls).await });
            self.under_way.insert(self.next, (key, value, asked));
            self.next += 1;
        }
        Ok(())
    }

    /// Sends on what may be, and waits until no more than `left` calls are under way.
    fn give(
        &mut self,
        left: usize,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        loop {
            self.early.extend(self.desk.answers());
            while let Some((number, answer)) = self.due() {
                let Some((key, value, _)) = self.under_way.remove(&number) else {
                    continue;
                };
                match answer {
                    Answer::Given(Ok(result)) => output.push((key, result)),
                    Answer::Given(Err(cause)) => {
                        self.policy.settle_item(key.shown(), &value, cause, cx)?;
                    }
                    Answer::Lost => {
                        let what =
                            "the call was given up: it panicked, or its runtime was shut down";
                        return Err(Failure {
                            key: key.shown().map(|key| format!("{key:?}")),
                            item: Some(format!("{value:?}")),
                            ..Failure::new(cx.step_name(), what)
                        });
                    }
                }
            }
            if self.under_way.len() <= left {
                return Ok(());
            }
            if cx.control.aborted() {
                return Err(Failure::new(cx.step_name(), "the flow has failed"));
            }
            self.desk.wait(&cx.control);
        }
    }

    /// An answer that may be sent on.
    fn due(&mut self) -> Option<(u64, Answer<U>)> {
        let first = self.early.first_entry()?;
        let in_turn = self.under_way.first_key_value();
        let held_back =
            self.calls.ordered && in_turn.is_some_and(|(number, _)| number != first.key());
        (!held_back).then(|| first.remove_entry())
    }

    /// A turn: what has been answered goes on, what waited is asked.
    pub(super) fn turn(
        &mut self,
        items: impl IntoIterator<Item = (K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.take(items, output, cx)?;
        self.give(usize::MAX, output, cx)?;
        if !self.under_way.is_empty() {
            cx.wake_at(cx.now().saturating_add(LOOK_AGAIN_NS));
        }
        Ok(())
    }

    /// Waits for all answers.
    pub(super) fn wait_all(
        &mut self,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.take([], output, cx)?;
        self.give(0, output, cx)
    }
}

impl<K: Beside, V: Data + Debug, U, F> Stateful for Calling<K, V, U, F> {
    /// A list of pairs of key and value, nothing if nothing is under way.
    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure> {
        let Some(codec) = self.codec else {
            return Ok(());
        };
        let waiting = self.again.iter().map(|(key, value)| (key, value));
        let asked = self.under_way.values().map(|(key, value, _)| (key, value));
        let mut state = Vec::new();
        let count = self.again.len() + self.under_way.len();
        if count > 0 {
            pack::list(count, &mut state);
        }
        for (key, value) in waiting.chain(asked) {
            pack::list(2, &mut state);
            Beside::save(key, &mut state);
            (codec.save)(value, &mut state).map_err(|cause| Failure {
                key: key.shown().map(|key| format!("{key:?}")),
                item: Some(format!("{value:?}")),
                ..Failure::new(cx.step_name(), cause)
            })?;
        }
        let state = (count > 0).then_some(state);
        let saved = self.saved.save(state, changes);
        saved.map_err(|cause| Failure::new(cx.step_name(), cause))
    }

    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let codec = from.codecs().get::<V>();
        let codec = codec.map_err(|cause| from.unsaved(cause))?;
        self.codec = Some(codec);
        let again = &mut self.again;
        self.saved.restore(from, |state| {
            for _ in 0..pack::take_list(state)? {
                pack::take_members(2, state)?;
                let key = Beside::load(state).ok_or("a key is of another type")?;
                again.push((key, (codec.load)(state)?));
            }
            Ok(())
        })
    }
}

impl<K, V, U, F> Drop for Calling<K, V, U, F> {
    fn drop(&mut self) {
        // Of a flow that has failed; one that has ended has no call left.
        self.under_way
            .values()
            .for_each(|(.., asked)| asked.abort());
    }
}

/// One call, with its retries.
async fn answer<V, U, E, Fut>(
    f: &(impl Fn(V) -> Fut + Sync),
    item: V,
    calls: &Calls,
) -> Result<U, Cause>
where
    V: Data,
    Fut: Future<Output = Result<U, E>> + Send,
    E: Into<Cause>,
{
    let (mut left, mut pause) = (calls.retries, calls.retry_pause);
    loop {
        let call = f(item.clone());
        let outcome = match calls.timeout {
            None => call.await.map_err(Into::into),
            Some(limit) => match tokio::time::timeout(limit, call).await {
                Ok(outcome) => outcome.map_err(Into::into),
                Err(_) => Err(format!("no answer within {limit:?}").into()),
            },
        };
        if outcome.is_ok() || left == 0 {
            return outcome;
        }
        left -= 1;
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2);
    }
}
