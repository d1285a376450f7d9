//! Logic whose items wait for their turn: for all earlier items, or for the timers before them.
//!
//! Partitions have different speeds, and event time is that of the slowest. An item may arrive while a timer of its key
//! that is due before it, by the watermark of its own partition, cannot fire yet, because an earlier item of another
//! partition may come. How many such items a key sees before the timer would depend on which partition is faster. So
//! they wait.
//!
//! Invariant: with [`InTurn::by_time`] the logic receives its items in the order of their times when the joined
//! watermark has passed them, and those of one time and one rank in the order of arrival. With [`InTurn::after_timers`]
//! it receives those of a partition in the order of arrival, and each after the timers up to the watermark of its
//! partition. In both, the items before a timer do not depend on the speed of partitions.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::backlog::{Backlog, Chain};
use super::{KeyLogic, Moment, Outputs};
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::saved::raw::{RAW, Raw, RawState, read};
use crate::time::{NEVER, Timed};

/// A logic whose items wait for their turn.
#[doc(hidden)] // For the other crates of Millstream.
pub struct InTurn<K, L: KeyLogic<K>> {
    inner: L,
    order: Order<L::In>,
    copy: fn(&L::In) -> L::In,
    refused: VecDeque<(L::In, L::Error)>,
}

/// The order of the items that wait.
struct Order<I> {
    by_time: bool,
    /// Orders items of one turn.
    rank: fn(&I) -> i64,
}

impl<I> Clone for Order<I> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<I> Copy for Order<I> {}

impl<I> Order<I> {
    /// The time up to which timers come before an item.
    fn turn(&self, item: &Timed<I>) -> i64 {
        if self.by_time {
            item.time
        } else {
            item.watermark
        }
    }

    /// Adds an item after those of its turn and rank.
    fn add(&self, items: &mut Backlog<Timed<I>>, item: Timed<I>) {
        let key = |item: &Timed<I>| (self.turn(item), (self.rank)(&item.value));
        let own = key(&item);
        // The rank of an item of another turn does not matter, and may be costly.
        items.insert_before(item, |other| match self.turn(other).cmp(&own.0) {
            Ordering::Equal => key(other).1 > own.1,
            order => order.is_gt(),
        });
    }
}

/// The items of a key that wait, in the order of their turns, and the state of its logic, from its first item on.
pub struct Waiting<S, I> {
    /// Most keys have none, and there are many keys: one word.
    items: Option<Box<Kept<I>>>,
    state: Option<S>,
}

/// The items of a key that wait, and how they are saved.
struct Kept<I> {
    items: Backlog<Timed<I>>,
    chain: Chain,
}

impl<I> Default for Kept<I> {
    fn default() -> Self {
        Kept {
            items: Backlog::default(),
            chain: Chain::default(),
        }
    }
}

impl<S, I> Waiting<S, I> {
    fn first(&self) -> Option<&Timed<I>> {
        self.items.as_ref().and_then(|kept| kept.items.front())
    }

    fn take_first(&mut self) -> Option<Timed<I>> {
        let items = &mut self.items.as_mut()?.items;
        let first = items.pop_front();
        if items.is_empty() {
            self.items = None;
        }
        first
    }
}

impl<K: 'static, L: KeyLogic<K>> InTurn<K, L> {
    /// Items in the order of their times, those of one time by their `rank`. `copy` copies an item, so that it is known
    /// if the logic fails.
    pub fn by_time(inner: L, copy: fn(&L::In) -> L::In, rank: fn(&L::In) -> i64) -> Self {
        InTurn {
            inner,
            order: Order {
                by_time: true,
                rank,
            },
            copy,
            refused: VecDeque::new(),
        }
    }

    /// Items as they arrive, each after the timers that are due before it by the watermark of its partition.
    pub fn after_timers(inner: L, copy: fn(&L::In) -> L::In) -> Self {
        let mut logic = InTurn::by_time(inner, copy, |_| 0);
        logic.order.by_time = false;
        logic
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
            let turn = held.first().map_or(NEVER, |item| self.order.turn(item));
            let at = Moment {
                event: turn.min(until.event),
                ..until
            };
            self.fire(key, held, at, out)?;
            let waits = if self.order.by_time {
                turn >= until.event
            } else {
                self.next_timer(held) <= turn
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
        if self.order.by_time && item.time < item.watermark.max(at.event) {
            out.late(key, item);
            return Ok(());
        }
        // No item that waits is of an earlier turn.
        if !self.order.by_time && item.watermark < self.next_timer(held) {
            return self.pass(key, held, item, at, out);
        }
        let kept = held.items.get_or_insert_default();
        self.order.add(&mut kept.items, item);
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
            let after = i64::from(self.order.by_time);
            let until = Moment {
                event: self.order.turn(first).saturating_add(after),
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
        let turn = match (self.order.by_time, held.first()) {
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
            order: self.order,
            item: codecs.get()?,
            state: self.inner.codec(codecs)?,
        }))
    }
}

/// The codec of `[[[time, watermark, item]...], state]`, or without a state if there is none. What has changed is
/// `[taken, [[time, watermark, item]...], state]`: the first `taken` items have had their turn, and the others are
/// added in their places.
struct WaitingCodec<S, I> {
    order: Order<I>,
    item: Codec<I>,
    state: BoxedCodec<S>,
}

impl<S, I: 'static> WaitingCodec<S, I> {
    fn save_item(&self, item: &Timed<I>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(3, out);
        pack::integer(item.time, out);
        pack::integer(item.watermark, out);
        self.item.save(&item.value, out)
    }

    fn load_item(&self, from: &mut &[u8]) -> Result<Timed<I>, Cause> {
        pack::take_members(3, from)?;
        Ok(Timed {
            time: pack::take_integer(from)?,
            watermark: pack::take_integer(from)?,
            value: self.item.load(from)?,
        })
    }

    fn save_state(&self, held: &Waiting<S, I>, out: &mut Vec<u8>) -> Result<(), Cause> {
        match &held.state {
            Some(state) => self.state.save(state, out),
            None => Ok(()),
        }
    }
}

impl Waiting<Raw, Raw> {
    /// Reads a state without its types.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Cause> {
        let order = Order {
            by_time: true,
            rank: |_| 0,
        };
        let codec = WaitingCodec {
            order,
            item: RAW,
            state: Box::new(RawState),
        };
        read(&codec, bytes)
    }

    /// Returns the items that wait.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Timed<Raw>> {
        self.items.iter().flat_map(|kept| kept.items.iter())
    }

    /// Returns the state, if there is one.
    pub(crate) fn state(&self) -> Option<&Raw> {
        self.state.as_ref()
    }
}

impl<S, I: 'static> StateCodec<Waiting<S, I>> for WaitingCodec<S, I> {
    fn save(&self, held: &Waiting<S, I>, out: &mut Vec<u8>) -> Result<(), Cause> {
        let start = out.len();
        pack::list(1 + usize::from(held.state.is_some()), out);
        let Some(kept) = &held.items else {
            pack::list(0, out);
            return self.save_state(held, out);
        };
        kept.items
            .save(out, |item, out| self.save_item(item, out))?;
        self.save_state(held, out)?;
        kept.chain.saved_complete(out.len() - start);
        Ok(())
    }
    fn load(&self, from: &mut &[u8]) -> Result<Waiting<S, I>, Cause> {
        let before = from.len();
        let parts = pack::take_list(from)?;
        let items = Backlog::load(from, |from| self.load_item(from))?;
        let state = (parts > 1).then(|| self.state.load(from)).transpose()?;
        let mut held = Waiting { items: None, state };
        if !items.is_empty() {
            let chain = Chain::default();
            chain.saved_complete(before - from.len());
            held.items = Some(Box::new(Kept { items, chain }));
        }
        Ok(held)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("turns");
        self.state.layout(out);
    }
    fn save_added(&self, held: &Waiting<S, I>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let Some(kept) = held
            .items
            .as_ref()
            .filter(|kept| kept.chain.takes_changes())
        else {
            return Ok(false);
        };
        let start = out.len();
        pack::list(2 + usize::from(held.state.is_some()), out);
        kept.items
            .save_changes(out, |item, out| self.save_item(item, out))?;
        self.save_state(held, out)?;
        kept.chain.saved_changes(out.len() - start);
        Ok(true)
    }
    fn load_added(&self, held: &mut Waiting<S, I>, from: &mut &[u8]) -> Result<(), Cause> {
        let before = from.len();
        let parts = pack::take_list(from)?;
        let kept = held.items.as_mut().ok_or("no item waits in it")?;
        let add = |items: &mut Backlog<_>, item| self.order.add(items, item);
        kept.items
            .load_changes(from, |from| self.load_item(from), add)?;
        held.state = (parts > 2).then(|| self.state.load(from)).transpose()?;
        kept.chain.saved_changes(before - from.len());
        Ok(())
    }
}
