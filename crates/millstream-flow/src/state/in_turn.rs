//! Logic whose items wait for their turn: for all earlier items, or for the timers before them.
//!
//! Partitions have different speeds, and event time is that of the slowest. An item may arrive while a timer of its key that is due before
//! it, by the watermark of its own partition, cannot fire yet, because an earlier item of another partition may come. How many such
//! items a key sees before the timer would depend on which partition is faster. So they wait.
//!
//! Invariant: with [`InTurn::by_time`] the logic receives its items in the order of their times when the
//! joined watermark has passed them, and those of one time and one rank in the order of arrival. With [`InTurn::after_timers`] it receives those of a partition in the order of arrival, and each after the
//! timers up to the watermark of its partition. In both, the items before a timer do not depend on the speed of partitions.

use std::collections::VecDeque;

use super::{KeyLogic, Moment, Outputs};
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::time::{NEVER, Timed};

/// A logic whose items wait for their turn.
pub struct InTurn<K, L: KeyLogic<K>> {
    inner: L,
    by_time: bool,
    copy: fn(&L::In) -> L::In,
    /// Orders items of one turn.
    rank: fn(&L::In) -> i64,
    refused: VecDeque<(L::In, L::Error)>,
}

/// The items of a key that wait, in the order of their turns, and the state of its logic, from its first item on.
pub struct Waiting<S, I> {
    #[expect(
        clippy::box_collection,
        reason = "most keys have none, and there are many keys: one word, not four"
    )]
    items: Option<Box<VecDeque<Timed<I>>>>,
    state: Option<S>,
}

impl<S, I> Waiting<S, I> {
    fn first(&self) -> Option<&Timed<I>> {
        self.items.as_ref().and_then(|items| items.front())
    }

    fn take_first(&mut self) -> Option<Timed<I>> {
        let items = self.items.as_mut()?;
        let first = items.pop_front();
        if items.is_empty() {
            self.items = None;
        }
        first
    }
}

impl<K: 'static, L: KeyLogic<K>> InTurn<K, L> {
    /// Items in the order of their times, those of one time by their `rank`. `copy` copies an item, so that it is known if the logic
    /// fails.
    pub fn by_time(inner: L, copy: fn(&L::In) -> L::In, rank: fn(&L::In) -> i64) -> Self {
        InTurn {
            inner,
            by_time: true,
            copy,
            rank,
            refused: VecDeque::new(),
        }
    }

    /// Items as they arrive, each after the timers that are due before it by the watermark of its partition.
    pub fn after_timers(inner: L, copy: fn(&L::In) -> L::In) -> Self {
        InTurn {
            by_time: false,
            ..InTurn::by_time(inner, copy, |_| 0)
        }
    }

    /// The time up to which timers come before an item.
    fn turn(&self, item: &Timed<L::In>) -> i64 {
        match self.by_time {
            true => item.time,
            false => item.watermark,
        }
    }

    /// The time of the next timer of the logic.
    fn next_timer(&self, held: &Waiting<L::State, L::In>) -> i64 {
        let state = held.state.as_ref();
        state.map_or(NEVER, |state| self.inner.next(state).event)
    }

    /// Processes the items that have their turn at `until`, and fires the timers up to it, in order.
    fn process(
        &mut self,
        key: &K,
        held: &mut Waiting<L::State, L::In>,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        loop {
            // Up to this time timers come before the first item.
            let turn = held.first().map_or(NEVER, |item| self.turn(item));
            let at = Moment {
                event: turn.min(until.event),
                ..until
            };
            self.fire(key, held, at, out)?;
            let waits = match self.by_time {
                true => turn >= until.event,
                false => self.next_timer(held) <= turn,
            };
            if waits {
                return Ok(());
            }
            let Some(mut item) = held.take_first() else {
                return Ok(());
            };
            item.watermark = turn;
            let copy = (self.copy)(&item.value);
            if let Err(error) = self.pass(key, held, item, at, out) {
                self.refused.push_back((copy, error));
            }
        }
    }

    /// Fires the timers of the logic up to `until`.
    fn fire(
        &mut self,
        key: &K,
        held: &mut Waiting<L::State, L::In>,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        let Some(state) = &mut held.state else {
            return Ok(());
        };
        let next = self.inner.next(state);
        if next.event > until.event && next.processing > until.processing {
            return Ok(());
        }
        let fired = self.inner.on_due(key, state, until, out);
        self.forget_empty(held);
        fired
    }

    /// Passes an item to the logic.
    fn pass(
        &mut self,
        key: &K,
        held: &mut Waiting<L::State, L::In>,
        item: Timed<L::In>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        let state = match held.state.take() {
            Some(state) => state,
            None => self.inner.open(key)?,
        };
        let state = held.state.insert(state);
        let passed = self.inner.on_item(key, state, item, at, out);
        self.forget_empty(held);
        passed
    }

    fn forget_empty(&self, held: &mut Waiting<L::State, L::In>) {
        held.state.take_if(|state| self.inner.is_empty(state));
    }
}

impl<K: 'static, L: KeyLogic<K>> KeyLogic<K> for InTurn<K, L> {
    type State = Waiting<L::State, L::In>;
    type In = L::In;
    type Out = L::Out;
    type Error = L::Error;

    fn open(&mut self, _: &K) -> Result<Self::State, L::Error> {
        Ok(Waiting {
            items: None,
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
        if self.by_time && item.time < item.watermark.max(at.event) {
            out.late(key, item);
            return Ok(());
        }
        // No item that waits is of an earlier turn.
        if !self.by_time && item.watermark < self.next_timer(held) {
            return self.pass(key, held, item, at, out);
        }
        let (turn, rank) = (self.turn(&item), (self.rank)(&item.value));
        let items = held.items.get_or_insert_default();
        let is_later = |other: &&Timed<L::In>| match self.turn(other) {
            same if same == turn => (self.rank)(&other.value) > rank,
            other => other > turn,
        };
        let later = items.iter().rev().take_while(is_later);
        let place = items.len() - later.count();
        items.insert(place, item);
        Ok(())
    }

    fn on_due(
        &mut self,
        key: &K,
        held: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        self.process(key, held, until, out)
    }

    fn on_end(
        &mut self,
        key: &K,
        held: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        // Timers after the last item do not fire any more.
        while let Some(first) = held.first() {
            let after = i64::from(self.by_time);
            let until = Moment {
                event: self.turn(first).saturating_add(after),
                ..at
            };
            self.process(key, held, until, out)?;
        }
        match &mut held.state {
            Some(state) => self.inner.on_end(key, state, at, out),
            None => Ok(()),
        }
    }

    fn ends_once(&self) -> bool {
        self.inner.ends_once()
    }

    fn take_refused(&mut self) -> Option<(L::In, L::Error)> {
        let inner = || self.inner.take_refused();
        self.refused.pop_front().or_else(inner)
    }

    fn next(&self, held: &Self::State) -> Moment {
        let timers = held.state.as_ref();
        let timers = timers.map_or(Moment::NEVER, |state| self.inner.next(state));
        let turn = match (self.by_time, held.first()) {
            (true, Some(first)) => first.time.saturating_add(1),
            _ => NEVER,
        };
        Moment {
            event: timers.event.min(turn),
            ..timers
        }
    }

    fn is_empty(&self, held: &Self::State) -> bool {
        held.items.is_none() && held.state.is_none()
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(WaitingCodec {
            item: codecs.get()?,
            state: self.inner.codec(codecs)?,
        }))
    }
}

/// The codec of `[[[time, watermark, item]...], state]`, or without a state if there is none.
struct WaitingCodec<S, I> {
    item: Codec<I>,
    state: BoxedCodec<S>,
}

impl<S, I: 'static> StateCodec<Waiting<S, I>> for WaitingCodec<S, I> {
    fn save(&self, held: &Waiting<S, I>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(1 + usize::from(held.state.is_some()), out);
        let items = held.items.as_deref();
        pack::list(items.map_or(0, VecDeque::len), out);
        for item in items.into_iter().flatten() {
            pack::list(3, out);
            pack::integer(item.time, out);
            pack::integer(item.watermark, out);
            self.item.save(&item.value, out)?;
        }
        match &held.state {
            Some(state) => self.state.save(state, out),
            None => Ok(()),
        }
    }
    fn load(&self, from: &mut &[u8]) -> Result<Waiting<S, I>, Cause> {
        let parts = pack::take_list(from)?;
        let mut items = VecDeque::new();
        for _ in 0..pack::take_list(from)? {
            pack::take_members(3, from)?;
            items.push_back(Timed {
                time: pack::take_integer(from)?,
                watermark: pack::take_integer(from)?,
                value: self.item.load(from)?,
            });
        }
        Ok(Waiting {
            items: (!items.is_empty()).then(|| Box::new(items)),
            state: (parts > 1).then(|| self.state.load(from)).transpose()?,
        })
    }
}
