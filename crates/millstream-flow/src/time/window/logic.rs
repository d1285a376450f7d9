//! Windows of any kind as the logic of a key.

use super::aggregate::Aggregate;
use super::aligned::{Grid, Panes};
use super::chosen::ChosenWindows;
use super::counted::{Counted, Size};
use super::item::{Choose, Copier};
use super::session::{Gap, Sessions};
use super::{Kind, Window};
use crate::checkpoint::{BoxedCodec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::key::hash_bytes;
use crate::state::{KeyLogic, Moment, Outputs};
use crate::time::{NEVER, Timed};

#[derive(Clone, Copy)]
enum Rule {
    Aligned(Grid),
    Session(Gap),
    Count(Size),
    /// Early results after so many items.
    Chosen(u64),
}

/// The open windows of one key.
pub struct Held<A>(Open<A>);

enum Open<A> {
    Aligned(Panes<A>),
    Session(Sessions<A>),
    Count(Counted<A>),
    Chosen(ChosenWindows<A>),
}

/// Windows, and what is made of them.
pub struct WindowLogic<G: Aggregate> {
    rule: Rule,
    aggregate: G,
    copy: Copier<G::In>,
    ordered: bool,
    choose: Option<Choose<G::Error>>,
}

impl<G: Aggregate> WindowLogic<G> {
    /// Windows as described; `copy` makes another of an item that is late for several of them. A description that does not
    /// [check](Window::check) has no meaning.
    pub fn new(window: Window, aggregate: G, copy: fn(&G::In) -> G::In) -> Self {
        let early = window.early;
        let rule = match window.kind {
            Kind::Aligned {
                length,
                every,
                offset,
            } => Rule::Aligned(Grid::new(length, every, offset, early)),
            Kind::Session { gap } => Rule::Session(Gap { gap, early }),
            Kind::Count { items } => Rule::Count(Size { items, early }),
        };
        WindowLogic {
            rule,
            aggregate,
            copy,
            ordered: window.ordered,
            choose: None,
        }
    }

    /// Windows that `choose` says hold an item. Of `window` only what is not its kind counts.
    pub fn chosen(
        window: Window,
        aggregate: G,
        copy: fn(&G::In) -> G::In,
        choose: Choose<G::Error>,
    ) -> Self {
        let rule = Rule::Chosen(window.early);
        let choose = Some(choose);
        WindowLogic {
            rule,
            choose,
            ..WindowLogic::new(window, aggregate, copy)
        }
    }
}

impl<K: 'static, G: Aggregate> KeyLogic<K> for WindowLogic<G> {
    type State = Held<G::Acc>;
    type In = G::In;
    type Out = G::Out;
    type Error = G::Error;

    fn open(&mut self, _: &K) -> Result<Self::State, G::Error> {
        Ok(Held(match self.rule {
            Rule::Aligned(_) => Open::Aligned(Panes::default()),
            Rule::Session(_) => Open::Session(Sessions::default()),
            Rule::Count(_) => Open::Count(Counted::default()),
            Rule::Chosen(_) => Open::Chosen(ChosenWindows::default()),
        }))
    }

    fn on_item(
        &mut self,
        key: &K,
        state: &mut Self::State,
        item: Timed<G::In>,
        at: Moment,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        // An idle partition may be behind the time that has come without it.
        let limit = item.watermark.max(at.event);
        if let (Rule::Aligned(grid), Open::Aligned(panes)) = (self.rule, &mut state.0) {
            let by = (&mut self.aggregate, key, self.copy);
            return grid.add(panes, item, limit, by, out);
        }
        if let (Rule::Chosen(early), Open::Chosen(held)) = (self.rule, &mut state.0)
            && let Some(choose) = &mut self.choose
        {
            let by = (&mut self.aggregate, key, self.copy);
            return held.add(item, (limit, early), choose, by, out);
        }
        let by = (&mut self.aggregate, key);
        match (self.rule, &mut state.0) {
            (Rule::Session(gap), Open::Session(held)) => gap.add(held, item, limit, by, out),
            (Rule::Count(size), Open::Count(held)) => size.add(held, item, by, out),
            _ => Ok(()),
        }
    }

    fn on_due(
        &mut self,
        key: &K,
        state: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        let aggregate = &mut self.aggregate;
        match (self.rule, &mut state.0) {
            (Rule::Aligned(grid), Open::Aligned(panes)) => {
                grid.close(panes, until.event, aggregate, key, out)
            }
            (Rule::Session(gap), Open::Session(held)) => {
                gap.close(held, until.event, aggregate, key, out)
            }
            (_, Open::Chosen(held)) => held.close(until.event, aggregate, key, out),
            _ => Ok(()),
        }
    }

    fn on_end(
        &mut self,
        key: &K,
        state: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        if let (Rule::Count(size), Open::Count(held)) = (self.rule, &mut state.0) {
            return size.close(held, at.event, &mut self.aggregate, key, out);
        }
        let until = Moment { event: NEVER, ..at };
        self.on_due(key, state, until, out)
    }

    fn next(&self, state: &Self::State) -> Moment {
        let event = match (self.rule, &state.0) {
            (_, Open::Aligned(panes)) => panes.next_end,
            (Rule::Session(gap), Open::Session(held)) => gap.next_close(held),
            (_, Open::Chosen(held)) => held.next_end(),
            _ => NEVER,
        };
        Moment {
            event,
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, state: &Self::State) -> bool {
        match &state.0 {
            Open::Aligned(panes) => panes.is_empty(),
            Open::Session(held) => held.is_empty(),
            Open::Count(held) => held.is_empty(),
            Open::Chosen(held) => held.is_empty(),
        }
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(HeldCodec {
            rule: self.rule,
            ordered: self.ordered,
            acc: self.aggregate.codec(codecs)?,
        }))
    }
}

/// Writes the open windows of a key: `[sign of the rule, windows]`. What was kept under one rule means nothing
/// under another.
struct HeldCodec<A> {
    rule: Rule,
    ordered: bool,
    acc: BoxedCodec<A>,
}

impl Rule {
    /// A number that tells this rule from others.
    fn sign(&self, ordered: bool) -> i64 {
        let numbers = match self {
            Rule::Aligned(grid) => grid.numbers(),
            Rule::Session(gap) => [1, gap.gap, 0, 0],
            Rule::Count(size) => [2, size.items as i64, 0, 0],
            Rule::Chosen(_) => [3, 0, 0, 0],
        };
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        if ordered {
            bytes.push(1);
        }
        i64::from(hash_bytes(&bytes) as u32)
    }
}

impl<A> StateCodec<Held<A>> for HeldCodec<A> {
    fn save(&self, held: &Held<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(2, out);
        pack::integer(self.rule.sign(self.ordered), out);
        match &held.0 {
            Open::Aligned(panes) => panes.save(&*self.acc, out),
            Open::Session(sessions) => sessions.save(&*self.acc, out),
            Open::Count(counted) => counted.save(&*self.acc, out),
            Open::Chosen(chosen) => chosen.save(&*self.acc, out),
        }
    }
    fn load(&self, from: &mut &[u8]) -> Result<Held<A>, Cause> {
        pack::take_members(2, from)?;
        if pack::take_integer(from)? != self.rule.sign(self.ordered) {
            return Err("its windows are of another kind or length now".into());
        }
        Ok(Held(match self.rule {
            Rule::Aligned(_) => Open::Aligned(Panes::load(&*self.acc, from)?),
            Rule::Session(_) => Open::Session(Sessions::load(&*self.acc, from)?),
            Rule::Count(_) => Open::Count(Counted::load(&*self.acc, from)?),
            Rule::Chosen(_) => Open::Chosen(ChosenWindows::load(&*self.acc, from)?),
        }))
    }
}
