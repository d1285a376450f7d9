//! Windows of any kind as the logic of a key.

use super::aggregate::Aggregate;
use super::aligned::{Grid, Panes};
use super::chosen;
use super::counted::Size;
use super::group::Groups;
use super::item::{Choose, Copier};
use super::session::SessionRule;
use super::{Kind, Window};
use crate::checkpoint::{BoxedCodec, Codecs, StateCodec};
use crate::error::Cause;
use crate::saved::raw::{Raw, RawState, read};
use crate::state::{KeyLogic, Moment, Outputs};
use crate::time::{NEVER, Timed};

#[derive(Clone, Copy)]
enum Rule {
    Aligned(Grid),
    Session(SessionRule),
    Count(Size),
    /// Early results after this many items.
    Chosen(u64),
}

/// The open windows of one key.
pub struct OpenWindows<A>(WindowSet<A>);

enum WindowSet<A> {
    Aligned(Panes<A>),
    /// Of the other rules.
    Groups(Groups<A>),
}

/// Windows with their aggregate.
#[doc(hidden)] // For the other crates of Millstream.
pub struct WindowLogic<G: Aggregate> {
    rule: Rule,
    aggregate: G,
    copy: Copier<G::In>,
    choose: Option<Choose<G::Error>>,
}

impl<G: Aggregate> WindowLogic<G> {
    /// Creates the logic of `window`, which must pass its [check](Window::check); `copy` copies an item that is
    /// late for several windows.
    pub fn new(window: Window, aggregate: G, copy: fn(&G::In) -> G::In) -> Self {
        let early = window.early;
        let rule = match window.kind {
            Kind::Aligned {
                length,
                every,
                offset,
            } => Rule::Aligned(Grid::new(length, every, offset, early)),
            Kind::Session { gap } => Rule::Session(SessionRule { gap, early }),
            Kind::Count { items } => Rule::Count(Size { items, early }),
        };
        WindowLogic {
            rule,
            aggregate,
            copy,
            choose: None,
        }
    }

    /// Creates the logic of windows that `choose` returns. The kind of `window` is ignored.
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
    type State = OpenWindows<G::Acc>;
    type In = G::In;
    type Out = G::Out;
    type Error = G::Error;

    fn open(&mut self, _: &K) -> Result<Self::State, G::Error> {
        Ok(OpenWindows(match self.rule {
            Rule::Aligned(_) => WindowSet::Aligned(Panes::default()),
            _ => WindowSet::Groups(Groups::default()),
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
        // The watermark of an idle partition may be before the time that has been reached without it.
        let limit = item.watermark.max(at.event);
        if let (Rule::Aligned(grid), WindowSet::Aligned(panes)) = (self.rule, &mut state.0) {
            let by = (&mut self.aggregate, key, self.copy);
            return grid.add(panes, item, limit, by, out);
        }
        if let (Rule::Chosen(early), WindowSet::Groups(held)) = (self.rule, &mut state.0)
            && let Some(choose) = &mut self.choose
        {
            let by = (&mut self.aggregate, key, self.copy);
            return chosen::add(held, item, (limit, early), choose, by, out);
        }
        let by = (&mut self.aggregate, key);
        match (self.rule, &mut state.0) {
            (Rule::Session(gap), WindowSet::Groups(held)) => gap.add(held, item, limit, by, out),
            (Rule::Count(size), WindowSet::Groups(held)) => size.add(held, item, by, out),
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
            (Rule::Aligned(grid), WindowSet::Aligned(panes)) => {
                grid.close(panes, until.event, aggregate, key, out)
            }
            (Rule::Session(gap), WindowSet::Groups(held)) => {
                gap.close(held, until.event, aggregate, key, out)
            }
            (Rule::Chosen(_), WindowSet::Groups(held)) => {
                chosen::close(held, until.event, aggregate, key, out)
            }
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
        if let (Rule::Count(size), WindowSet::Groups(held)) = (self.rule, &mut state.0) {
            return size.close(held, at.event, &mut self.aggregate, key, out);
        }
        let until = Moment { event: NEVER, ..at };
        self.on_due(key, state, until, out)
    }

    fn take_refused(&mut self) -> Option<(G::In, G::Error)> {
        self.aggregate.take_refused()
    }

    fn next(&self, state: &Self::State) -> Moment {
        let event = match (self.rule, &state.0) {
            (_, WindowSet::Aligned(panes)) => panes.next_end,
            (Rule::Session(gap), WindowSet::Groups(held)) => gap.next_close(held),
            (Rule::Chosen(_), WindowSet::Groups(held)) => chosen::next_end(held),
            _ => NEVER,
        };
        Moment {
            event,
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, state: &Self::State) -> bool {
        match &state.0 {
            WindowSet::Aligned(panes) => panes.is_empty(),
            WindowSet::Groups(held) => held.is_empty(),
        }
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(OpenWindowsCodec {
            aligned: matches!(self.rule, Rule::Aligned(_)),
            acc: self.aggregate.codec(codecs)?,
        }))
    }
}

/// The codec of the open windows of a key, which are of one kind.
struct OpenWindowsCodec<A> {
    aligned: bool,
    acc: BoxedCodec<A>,
}

impl OpenWindows<Raw> {
    /// Reads windows without their types.
    pub(crate) fn read(aligned: bool, bytes: &[u8]) -> Result<Self, Cause> {
        let acc = Box::new(RawState);
        read(&OpenWindowsCodec { aligned, acc }, bytes)
    }

    /// Returns the bounds of each window or pane, the number of its items and its accumulator.
    pub(crate) fn each(&self) -> Vec<(i64, i64, u64, &Raw)> {
        match &self.0 {
            WindowSet::Aligned(panes) => panes.each().collect(),
            WindowSet::Groups(groups) => groups.each().collect(),
        }
    }
}

impl<A> StateCodec<OpenWindows<A>> for OpenWindowsCodec<A> {
    fn save(&self, held: &OpenWindows<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        match &held.0 {
            WindowSet::Aligned(panes) => panes.save(&*self.acc, out),
            WindowSet::Groups(groups) => groups.save(&*self.acc, out),
        }
    }
    fn load(&self, from: &mut &[u8]) -> Result<OpenWindows<A>, Cause> {
        Ok(OpenWindows(if self.aligned {
            WindowSet::Aligned(Panes::load(&*self.acc, from)?)
        } else {
            WindowSet::Groups(Groups::load(&*self.acc, from)?)
        }))
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push(if self.aligned { "panes" } else { "groups" });
        self.acc.layout(out);
    }
    fn save_added(&self, held: &OpenWindows<A>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        match &held.0 {
            WindowSet::Aligned(panes) => panes.save_added(&*self.acc, out),
            WindowSet::Groups(groups) => groups.save_added(&*self.acc, out),
        }
    }
    fn load_added(&self, held: &mut OpenWindows<A>, from: &mut &[u8]) -> Result<(), Cause> {
        match &mut held.0 {
            WindowSet::Aligned(panes) => panes.load_added(&*self.acc, from),
            WindowSet::Groups(groups) => groups.load_added(&*self.acc, from),
        }
    }
}
