//! Items of a key in the order of their times, for a logic that takes them as they arrive.
//!
//! Invariant: the logic receives the items of a key by event time, those of one time by their rank and then in the order of arrival, each
//! once the watermark has passed it, and what is due to it between two of them. So its output depends neither on the size of batches nor
//! on the speed of streams. An item that is earlier than the watermark is late.

use std::collections::VecDeque;

use super::{KeyLogic, Moment, Outputs};
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::time::{NEVER, Timed};

/// A logic that receives its items in the order of their times; `rank` orders those of one time.
pub struct InTimeOrder<L, R> {
    inner: L,
    rank: R,
}

/// The items of a key that wait for the watermark, and the state of the logic.
pub struct WithWaiting<T, S> {
    /// In the order in which they are processed.
    waiting: VecDeque<Waiting<T>>,
    /// `None` before the first item, and after the logic has removed the key.
    state: Option<S>,
}

/// An item that waits.
struct Waiting<T> {
    time: i64,
    rank: i64,
    value: T,
}

impl<L, R> InTimeOrder<L, R> {
    /// Creates the logic.
    pub fn new(inner: L, rank: R) -> Self {
        InTimeOrder { inner, rank }
    }
}

impl<L, R> InTimeOrder<L, R> {
    /// Processes the items before `until` and what is due up to then, in the order of their times.
    fn process<K>(
        &mut self,
        key: &K,
        held: &mut WithWaiting<L::In, L::State>,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error>
    where
        L: KeyLogic<K>,
    {
        loop {
            let turn = held.waiting.front().map_or(NEVER, |item| item.time);
            let at = |event| Moment { event, ..until };
            let reached = at(turn.min(until.event));
            if let Some(state) = &mut held.state {
                let next = self.inner.next(state);
                if next.event <= reached.event || next.processing <= reached.processing {
                    let outcome = self.inner.on_due(key, state, reached, out);
                    let is_gone = self.inner.is_empty(state);
                    held.state.take_if(|_| is_gone);
                    outcome?;
                    continue;
                }
            }
            if turn >= until.event {
                return Ok(());
            }
            let Some(Waiting { time, value, .. }) = held.waiting.pop_front() else {
                return Ok(());
            };
            if held.state.is_none() {
                held.state = Some(self.inner.open(key)?);
            }
            if let Some(state) = &mut held.state {
                // When an item is processed, event time has just reached it.
                let item = Timed {
                    time,
                    watermark: time,
                    value,
                };
                let outcome = self.inner.on_item(key, state, item, at(time), out);
                let is_gone = self.inner.is_empty(state);
                held.state.take_if(|_| is_gone);
                outcome?;
            }
        }
    }
}

impl<K, L, R> KeyLogic<K> for InTimeOrder<L, R>
where
    K: 'static,
    L: KeyLogic<K>,
    R: Fn(&L::In) -> i64 + 'static,
{
    type State = WithWaiting<L::In, L::State>;
    type In = L::In;
    type Out = L::Out;
    type Error = L::Error;

    fn open(&mut self, _: &K) -> Result<Self::State, L::Error> {
        Ok(WithWaiting {
            waiting: VecDeque::new(),
            state: None,
        })
    }

    fn on_item(
        &mut self,
        key: &K,
        held: &mut Self::State,
        item: Timed<L::In>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        if item.time < item.watermark.max(at.event) {
            out.late(key, item);
            return Ok(());
        }
        let (time, rank) = (item.time, (self.rank)(&item.value));
        let later = held.waiting.iter().rev();
        let later = later.take_while(|other| (other.time, other.rank) > (time, rank));
        let place = held.waiting.len() - later.count();
        let value = item.value;
        held.waiting.insert(place, Waiting { time, rank, value });
        Ok(())
    }

    fn on_due(
        &mut self,
        key: &K,
        held: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        // After a watermark no item before it arrives; an item at it may.
        self.process(key, held, until, out)
    }

    fn on_end(
        &mut self,
        key: &K,
        held: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        if let Some(last) = held.waiting.back() {
            let event = last.time.saturating_add(1).max(at.event);
            self.process(key, held, Moment { event, ..at }, out)?;
        }
        match &mut held.state {
            Some(state) => self.inner.on_end(key, state, at, out),
            None => Ok(()),
        }
    }

    fn take_refused(&mut self) -> Option<(L::In, L::Error)> {
        self.inner.take_refused()
    }

    fn next(&self, held: &Self::State) -> Moment {
        let turn = held.waiting.front().map_or(NEVER, |item| item.time);
        let state = held.state.as_ref();
        let next = state.map_or(Moment::NEVER, |state| self.inner.next(state));
        Moment {
            event: next.event.min(turn.saturating_add(1)),
            ..next
        }
    }

    fn is_empty(&self, held: &Self::State) -> bool {
        let state = held.state.as_ref();
        held.waiting.is_empty() && state.is_none_or(|state| self.inner.is_empty(state))
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(WithWaitingCodec {
            item: codecs.get::<L::In>()?,
            state: self.inner.codec(codecs)?,
        }))
    }
}

/// The codec of `[[time, rank, value, ...], has a state, state]`, the last of which is missing without a state.
struct WithWaitingCodec<T, S> {
    item: Codec<T>,
    state: BoxedCodec<S>,
}

impl<T, S> StateCodec<WithWaiting<T, S>> for WithWaitingCodec<T, S> {
    fn save(&self, held: &WithWaiting<T, S>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(if held.state.is_some() { 3 } else { 2 }, out);
        pack::list(3 * held.waiting.len(), out);
        for item in &held.waiting {
            pack::integer(item.time, out);
            pack::integer(item.rank, out);
            self.item.save(&item.value, out)?;
        }
        pack::flag(held.state.is_some(), out);
        match &held.state {
            Some(state) => self.state.save(state, out),
            None => Ok(()),
        }
    }
    fn load(&self, from: &mut &[u8]) -> Result<WithWaiting<T, S>, Cause> {
        let (parts, items) = (pack::take_list(from)?, pack::take_list(from)? / 3);
        let mut waiting = VecDeque::with_capacity(items.min(from.len()));
        for _ in 0..items {
            waiting.push_back(Waiting {
                time: pack::take_integer(from)?,
                rank: pack::take_integer(from)?,
                value: self.item.load(from)?,
            });
        }
        let state = match (parts, pack::take_flag(from)?) {
            (3, true) => Some(self.state.load(from)?),
            (2, false) => None,
            _ => return Err("it is not the state of a step that orders its items by time".into()),
        };
        Ok(WithWaiting { waiting, state })
    }
}
