//! The calls of one worker: the pending calls, the order of their answers, and their saved state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use super::options::Calls;
use super::runtime::{Answer, PendingCall, PendingReplies};
use crate::batch::Data;
use crate::checkpoint::{Changes, Codec, PerWorker, Restore, pack};
use crate::describe::stream::Making;
use crate::error::{Cause, Failure, FlowError};
use crate::key::Key;
use crate::policy::Policy;
use crate::step::{Context, Stateful};

/// What is wrong with a runtime that runs no call.
const NOT_RUN: &str = "no call has begun for 10 s: the runtime of `Calls::runtime` has no threads of its own, and runs inside its \
                       `block_on` only; await the flow there, by `flow.start(options)?.await`, or use a runtime with threads";

/// The longest sleep of a worker with pending calls, unless something else wakes it; nanoseconds.
const WAKE_INTERVAL_NS: i64 = 1_000_000;

/// The key beside a value, or nothing in a stream without keys.
pub(super) trait OptionalKey: Data {
    fn save(&self, out: &mut Vec<u8>);
    fn load(from: &mut &[u8]) -> Option<Self>;
    fn shown(&self) -> Option<&dyn Debug>;
}

impl OptionalKey for () {
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

impl<K: Key> OptionalKey for K {
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
    replies: PendingReplies<U>,
    pub(super) policy: Policy,
    /// The calls whose answers were not passed on, by number.
    pending: BTreeMap<u64, (K, V, PendingCall)>,
    /// The answers that wait for those of earlier calls.
    early: BTreeMap<u64, Answer<U>>,
    /// The number of the next call.
    next: u64,
    /// The calls that were pending at the commit from which the run resumes.
    repeated: Vec<(K, V)>,
    codec: Option<Codec<V>>,
    saved: PerWorker,
}

impl<K, V, U, F, Fut, E> Calling<K, V, U, F>
where
    K: OptionalKey,
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
        let replies = PendingReplies::open(calls.runtime.as_ref());
        let replies = replies.map_err(|error| Failure::new(making.info.name.clone(), error))?;
        Ok(Calling {
            f: Arc::clone(f),
            calls: Arc::clone(calls),
            replies,
            policy: making.policy(&calls.on_error)?,
            pending: BTreeMap::new(),
            early: BTreeMap::new(),
            next: 0,
            repeated: Vec::new(),
            codec: None,
            saved: PerWorker::new(making.worker, making.shards),
        })
    }

    /// Begins calls, each when the number of pending calls allows it.
    fn begin(
        &mut self,
        items: impl IntoIterator<Item = (K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let repeated = std::mem::take(&mut self.repeated);
        for (key, value) in repeated.into_iter().chain(items) {
            self.emit(self.calls.concurrency - 1, output, cx)?;
            let f = Arc::clone(&self.f);
            let item = value.clone();
            let calls = Arc::clone(&self.calls);
            let call = self
                .replies
                .start(self.next, async move { answer(&*f, item, &calls).await });
            self.pending.insert(self.next, (key, value, call));
            self.next += 1;
        }
        Ok(())
    }

    /// Passes answers on, and waits until at most `left` calls are pending.
    fn emit(
        &mut self,
        left: usize,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        loop {
            self.early.extend(self.replies.answers());
            while let Some((number, answer)) = self.due() {
                let Some((key, value, _)) = self.pending.remove(&number) else {
                    continue;
                };
                match answer {
                    Answer::Returned(Ok(result)) => output.push((key, result)),
                    Answer::Returned(Err(cause)) => {
                        self.policy.apply_to_item(key.shown(), &value, cause, cx)?;
                    }
                    Answer::Panicked(message) => {
                        let what = format!("the call panicked: {message}");
                        return Err(ended(&key, &value, what, cx));
                    }
                    Answer::Lost => {
                        let what = "the call was abandoned: its runtime was shut down";
                        return Err(ended(&key, &value, what, cx));
                    }
                }
            }
            if self.replies.runs_nothing() {
                return Err(Failure::new(cx.step_name(), NOT_RUN));
            }
            if self.pending.len() <= left {
                return Ok(());
            }
            if cx.control.leaves_calls(&cx.step_name(), self.pending.len()) {
                return Err(Failure::new(
                    cx.step_name(),
                    "the flow has ended without its calls",
                ));
            }
            self.replies.wait(&cx.control);
        }
    }

    /// Returns the next answer that may be passed on.
    fn due(&mut self) -> Option<(u64, Answer<U>)> {
        let first = self.early.first_entry()?;
        let oldest = self.pending.first_key_value();
        let held_back =
            self.calls.ordered && oldest.is_some_and(|(number, _)| number != first.key());
        (!held_back).then(|| first.remove_entry())
    }

    /// Runs a turn: begins the calls of items, and passes on the answers that have arrived.
    pub(super) fn turn(
        &mut self,
        items: impl IntoIterator<Item = (K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.begin(items, output, cx)?;
        self.emit(usize::MAX, output, cx)?;
        if !self.pending.is_empty() {
            cx.wake_at(cx.now().saturating_add(WAKE_INTERVAL_NS));
        }
        Ok(())
    }

    /// Waits for all answers.
    pub(super) fn wait_all(
        &mut self,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.begin([], output, cx)?;
        self.emit(0, output, cx)
    }
}

impl<K: OptionalKey, V: Data + Debug, U, F> Stateful for Calling<K, V, U, F> {
    /// Saves a list of pairs of key and value, or nothing if no call is pending.
    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure> {
        let Some(codec) = self.codec else {
            return Ok(());
        };
        let waiting = self.repeated.iter().map(|(key, value)| (key, value));
        let call = self.pending.values().map(|(key, value, _)| (key, value));
        let mut state = Vec::new();
        let count = self.repeated.len() + self.pending.len();
        if count > 0 {
            pack::list(count, &mut state);
        }
        for (key, value) in waiting.chain(call) {
            pack::list(2, &mut state);
            OptionalKey::save(key, &mut state);
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
        let repeated = &mut self.repeated;
        self.saved.restore(from, |state| {
            for _ in 0..pack::take_list(state)? {
                pack::take_members(2, state)?;
                let key = OptionalKey::load(state).ok_or("a key is of another type")?;
                repeated.push((key, (codec.load)(state)?));
            }
            Ok(())
        })
    }
}

impl<K, V, U, F> Drop for Calling<K, V, U, F> {
    fn drop(&mut self) {
        // The calls of a flow that has failed; a flow that has ended has none.
        self.pending.values().for_each(|(.., call)| call.abort());
    }
}

/// The failure of a call that has ended without an answer.
fn ended<K: OptionalKey>(
    key: &K,
    value: &impl Debug,
    cause: impl Into<Cause>,
    cx: &Context,
) -> Failure {
    Failure {
        key: key.shown().map(|key| format!("{key:?}")),
        item: Some(format!("{value:?}")),
        ..Failure::new(cx.step_name(), cause)
    }
}

/// Makes one call, with its retries.
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
    let mut left = calls.retries;
    let mut pause = calls.retry_pause;
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
