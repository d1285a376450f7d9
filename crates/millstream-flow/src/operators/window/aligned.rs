//! Tumbling and sliding windows, which are aligned to a grid.
//!
//! Windows `[e - length, e)` end at the moments `e` of a grid of step `every`. Time is divided into panes so
//! that a window is a sequence of complete panes; a tumbling window is one pane. A key has its panes in the
//! order of time, and the end of the first window that has items: windows and panes without items cost nothing,
//! however many there are between items. A window of many panes is merged from [`Parts`].

use std::cell::Cell;
use std::ops::Range;

use super::aggregate::{Aggregate, Bounds};
use super::inline_queue::InlineQueue;
use super::item::Copier;
use super::parts::{Leaves, Parts};
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::state::Outputs;
use crate::time::{BEFORE_ALL, NEVER, Timed};

/// The grid.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    length: i64,
    every: i64,
    offset: i64,
    pane: i64,
    early: u64,
}

/// A span of time with the accumulator of its items.
struct Pane<A> {
    start: i64,
    /// The end of the first window that includes it.
    first_end: i64,
    items: u64,
    /// How many of them were saved.
    saved: Cell<u64>,
    acc: A,
}

/// Windows of fewer panes are merged pane by pane.
const PANES_MIN: i64 = 8;

/// The panes of one key.
pub(super) struct Panes<A> {
    panes: InlineQueue<Pane<A>>,
    /// The end of the first window that has items.
    pub(super) next_end: i64,
    shared: Option<Box<Shared<A>>>,
    /// Whether what was saved last is a part of them: none was removed since.
    grows: Cell<bool>,
}

/// What the windows of a key share, if they have many panes.
struct Shared<A> {
    parts: Parts<A>,
    /// Windows that begin before this may have late items, which belong to some of them only: they have no parts.
    late_before: i64,
}

impl<A> Default for Shared<A> {
    fn default() -> Self {
        Shared {
            parts: Parts::default(),
            late_before: BEFORE_ALL,
        }
    }
}

impl<A> Default for Panes<A> {
    fn default() -> Self {
        Panes {
            panes: InlineQueue::default(),
            next_end: NEVER,
            shared: None,
            grows: Cell::new(false),
        }
    }
}

impl<A> Pane<A> {
    /// Appends `[start, first_end, items, ...]`, a list of five with the last member.
    fn save_head(&self, out: &mut Vec<u8>) {
        pack::list(5, out);
        for number in [self.start, self.first_end, self.items as i64] {
            pack::integer(number, out);
        }
    }
}

impl<A> Panes<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.panes.is_empty()
    }

    /// Appends `[next_end, [[start, first_end, items, false, accumulator]...]]`.
    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(2, out);
        pack::integer(self.next_end, out);
        pack::list(self.panes.len(), out);
        for pane in self.panes.iter() {
            pane.save_head(out);
            pack::flag(false, out);
            codec.save(&pane.acc, out)?;
            pane.saved.set(pane.items);
        }
        self.grows.set(true);
        Ok(())
    }

    /// The same for the panes with new items only. The flag of those that were saved before is true, and their
    /// accumulator is what was added to it.
    pub(super) fn save_added(
        &self,
        codec: &dyn StateCodec<A>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Cause> {
        if !self.grows.get() {
            return Ok(false);
        }
        let changed = || {
            let panes = self.panes.iter();
            panes.filter(|pane| pane.items > pane.saved.get())
        };
        pack::list(2, out);
        pack::integer(self.next_end, out);
        pack::list(changed().count(), out);
        for pane in changed() {
            pane.save_head(out);
            let is_known = pane.saved.get() > 0;
            pack::flag(is_known, out);
            if !is_known {
                codec.save(&pane.acc, out)?;
            } else if !codec.save_added(&pane.acc, out)? {
                return Ok(false);
            }
            pane.saved.set(pane.items);
        }
        Ok(true)
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        let mut held = Panes::default();
        held.load_added(codec, from)?;
        Ok(held)
    }

    /// Returns the start of each pane, the end of its first window, the number of its items and its accumulator.
    pub(super) fn each(&self) -> impl Iterator<Item = (i64, i64, u64, &A)> {
        let panes = self.panes.iter();
        panes.map(|pane| (pane.start, pane.first_end, pane.items, &pane.acc))
    }

    /// Adds the panes, or what is added to them.
    pub(super) fn load_added(
        &mut self,
        codec: &dyn StateCodec<A>,
        from: &mut &[u8],
    ) -> Result<(), Cause> {
        pack::take_members(2, from)?;
        self.next_end = pack::take_integer(from)?;
        for _ in 0..pack::take_list(from)? {
            pack::take_members(5, from)?;
            let start = pack::take_integer(from)?;
            let first_end = pack::take_integer(from)?;
            let items = pack::take_count(from)?;
            let place = self.place(start, first_end);
            if pack::take_flag(from)? {
                let place = place.map_err(|_| "it has items of a pane that is missing")?;
                let pane = &mut self.panes[place];
                codec.load_added(&mut pane.acc, from)?;
                pane.items = items;
                pane.saved.set(items);
                continue;
            }
            let place = place.err().ok_or("it has a pane twice")?;
            let pane = Pane {
                start,
                first_end,
                items,
                saved: Cell::new(items),
                acc: codec.load(from)?,
            };
            self.panes.insert(place, pane);
        }
        self.grows.set(true);
        Ok(())
    }

    /// The place of a pane; an error has the place at which it is inserted.
    fn place(&self, start: i64, first_end: i64) -> Result<usize, usize> {
        let sought = (start, first_end);
        let later = self.panes.iter().rev();
        let later = later.take_while(|p| (p.start, p.first_end) > sought);
        let place = self.panes.len() - later.count();
        match place.checked_sub(1).map(|before| &self.panes[before]) {
            Some(pane) if (pane.start, pane.first_end) == sought => Ok(place - 1),
            _ => Err(place),
        }
    }

    /// The panes that start in this span of time, by their places.
    fn places(&self, span: Range<i64>) -> Range<usize> {
        let place = |time| self.panes.partition_point(|pane| pane.start < time);
        place(span.start)..place(span.end)
    }
}

/// The moment of a grid at or before `time`.
fn floor_to(time: i64, step: i64, phase: i64) -> i64 {
    time.saturating_sub(time.saturating_sub(phase).rem_euclid(step))
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

impl Grid {
    pub(super) fn new(length: i64, every: i64, offset: i64, early: u64) -> Self {
        Grid {
            length,
            every,
            offset: offset.rem_euclid(every.max(1)),
            pane: greatest_common_divisor(length, every).max(1),
            early,
        }
    }

    /// True if windows have so many panes that they share parts.
    fn shares<G: Aggregate>(&self, aggregate: &G) -> bool {
        self.length / self.pane >= PANES_MIN && !aggregate.grows()
    }

    /// True for a pane of items that were late for some of its windows.
    fn is_late<A>(&self, pane: &Pane<A>) -> bool {
        pane.first_end.saturating_sub(pane.start) > self.every
    }

    /// Returns the number of the pane that starts at `time`.
    fn number(&self, time: i64) -> i64 {
        time.saturating_sub(self.offset).div_euclid(self.pane)
    }

    /// Returns the end of the first window that contains `time`.
    fn first_end(&self, time: i64) -> i64 {
        let phase = (self.offset + self.length % self.every) % self.every;
        floor_to(time, self.every, phase).saturating_add(self.every)
    }

    fn bounds(&self, end: i64, early: bool) -> Bounds {
        Bounds {
            start: end.saturating_sub(self.length),
            end,
            early,
        }
    }

    /// Returns the end of the last window that contains `time`.
    fn last_end(&self, time: i64) -> i64 {
        let phase = (self.offset + self.length % self.every) % self.every;
        floor_to(time.saturating_add(self.length), self.every, phase)
    }

    /// Adds an item to those of its windows that have not closed by the watermark `limit`. It is emitted as
    /// late once for each that has.
    pub(super) fn add<K, G: Aggregate>(
        &self,
        held: &mut Panes<G::Acc>,
        item: Timed<G::In>,
        limit: i64,
        (aggregate, key, copy): (&mut G, &K, Copier<G::In>),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        let time = item.time;
        let next_end = held.next_end;
        let place = match held.panes.last() {
            // The last pane, if it is of this span of time and has no late items, and the item is not late for
            // any window.
            Some(last)
                if last.start <= time
                    && time.saturating_sub(last.start) < self.pane
                    && last.first_end > limit
                    && !self.is_late(last) =>
            {
                held.panes.len() - 1
            }
            _ => {
                let mut first_open = self.first_end(time);
                if first_open <= limit {
                    let last_end = self.last_end(time);
                    while first_open <= limit && first_open < last_end {
                        out.late(key, item.copied(copy));
                        first_open = first_open.saturating_add(self.every);
                    }
                    if first_open <= limit {
                        out.late(key, item);
                        return Ok(());
                    }
                }
                self.open(held, time, first_open, aggregate)?
            }
        };
        let pane = &mut held.panes[place];
        let stamp = item.times();
        if let Err(error) = aggregate.add_timed(&mut pane.acc, item) {
            // A window without items is not stored.
            if pane.items == 0 {
                held.panes.remove(place);
                held.next_end = next_end;
                held.grows.set(false);
            }
            return Err(error);
        }
        pane.items += 1;
        if self.early > 0 && pane.items.is_multiple_of(self.early) {
            let ends = (pane.first_end.max(held.next_end), pane.start);
            return self.emit_early(held, ends, stamp, (aggregate, key), out);
        }
        Ok(())
    }

    /// Returns the index of the pane of `time` that counts in windows from the one that ends at `first_end`;
    /// creates it if it does not exist.
    fn open<G: Aggregate>(
        &self,
        held: &mut Panes<G::Acc>,
        time: i64,
        first_end: i64,
        aggregate: &mut G,
    ) -> Result<usize, G::Error> {
        let start = floor_to(time, self.pane, self.offset);
        let place = match held.place(start, first_end) {
            Ok(place) => return Ok(place),
            Err(place) => place,
        };
        let pane = Pane {
            start,
            first_end,
            items: 0,
            saved: Cell::new(0),
            acc: aggregate.initial()?,
        };
        if self.is_late(&pane)
            && let Some(shared) = &mut held.shared
        {
            // A part of it may have been merged without its items.
            shared.parts = Parts::default();
            shared.late_before = shared.late_before.max(start.saturating_add(1));
        }
        held.panes.insert(place, pane);
        held.next_end = held.next_end.min(first_end);
        Ok(place)
    }

    /// Emits the early results of the windows that contain the pane that starts at `start`.
    fn emit_early<K, G: Aggregate>(
        &self,
        held: &mut Panes<G::Acc>,
        (mut end, start): (i64, i64),
        stamp: Timed<()>,
        (aggregate, key): (&mut G, &K),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        while end <= start.saturating_add(self.length) {
            let bounds = self.bounds(end, true);
            let whole = held.panes.iter().position(|p| p.start == bounds.start);
            let result = match whole {
                Some(only) if self.pane == self.length => {
                    aggregate.result_of_any(&mut held.panes[only].acc, bounds)?
                }
                _ => match merged(held, bounds, aggregate)? {
                    Some(mut acc) => aggregate.result_of_any(&mut acc, bounds)?,
                    None => None,
                },
            };
            if let Some(result) = result {
                out.result(key, stamp.map(|()| result));
            }
            end = end.saturating_add(self.every);
        }
        Ok(())
    }

    /// Closes the windows whose end has been reached, in the order of their ends.
    pub(super) fn close<K, G: Aggregate>(
        &self,
        held: &mut Panes<G::Acc>,
        until: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        while held.next_end <= until && !held.panes.is_empty() {
            let end = held.next_end;
            let bounds = self.bounds(end, false);
            held.grows.set(false);
            let result = if self.pane == self.length {
                let pane = held.panes.pop_first().filter(|pane| pane.items > 0);
                self.drop_closed(held, end);
                pane.map(|mut pane| aggregate.result_of_any(&mut pane.acc, bounds))
            } else {
                let acc = self.merged(held, bounds, aggregate).transpose();
                // A window is removed, even if a function fails.
                self.drop_closed(held, end);
                acc.map(|acc| acc.and_then(|mut acc| aggregate.result_of_any(&mut acc, bounds)))
            };
            if let Some(result) = result.transpose()?.flatten() {
                let output = Timed {
                    time: end.saturating_sub(1),
                    watermark: end.saturating_sub(1),
                    value: result,
                };
                out.result(key, output);
            }
        }
        Ok(())
    }

    /// Drops the panes that belong to no window after the one that ends at `end`, and finds the next window.
    fn drop_closed<A>(&self, held: &mut Panes<A>, end: i64) {
        let next_start = end.saturating_sub(self.length).saturating_add(self.every);
        held.panes.drop_while(|pane| pane.start < next_start);
        if let Some(shared) = &mut held.shared {
            shared.parts.drop_before(self.number(next_start));
        }
        let next = end.saturating_add(self.every);
        let ends = |pane: &Pane<A>| pane.first_end.max(next);
        held.next_end = match held.panes.first() {
            None => NEVER,
            // Panes are whole windows, or the first one has no late items: no other has an earlier window.
            Some(front) if !self.is_late(front) => ends(front),
            Some(_) => held.panes.iter().map(ends).min().unwrap_or(NEVER),
        };
    }

    /// Merges the panes of a window that closes; `None` if each item was refused.
    fn merged<G: Aggregate>(
        &self,
        held: &mut Panes<G::Acc>,
        bounds: Bounds,
        aggregate: &mut G,
    ) -> Result<Option<G::Acc>, G::Error> {
        if !self.shares(aggregate) {
            return merged(held, bounds, aggregate);
        }
        let mut shared = held.shared.take().unwrap_or_else(|| {
            let late = held.panes.iter().filter(|pane| self.is_late(pane));
            let late_before = late.map(|pane| pane.start.saturating_add(1)).max();
            Box::new(Shared {
                late_before: late_before.unwrap_or(BEFORE_ALL),
                ..Shared::default()
            })
        });
        let made = if bounds.start < shared.late_before {
            merged(held, bounds, aggregate)
        } else {
            let numbers = self.number(bounds.start)..self.number(bounds.end);
            let leaves = Numbered { grid: self, held };
            shared.parts.merged(numbers, &leaves, aggregate)
        };
        held.shared = Some(shared);
        made
    }
}

/// The panes of a key by their numbers.
struct Numbered<'a, A> {
    grid: &'a Grid,
    held: &'a Panes<A>,
}

impl<A> Numbered<'_, A> {
    fn inside(&self, numbers: Range<i64>) -> impl Iterator<Item = &Pane<A>> {
        let start = |number: i64| {
            let time = number.saturating_mul(self.grid.pane);
            time.saturating_add(self.grid.offset)
        };
        let places = self.held.places(start(numbers.start)..start(numbers.end));
        let panes = places.map(|place| &self.held.panes[place]);
        panes.filter(|pane| pane.items > 0)
    }
}

impl<A> Leaves<A> for Numbered<'_, A> {
    fn has_any(&self, numbers: Range<i64>) -> bool {
        self.inside(numbers).next().is_some()
    }
    fn of<'a>(&'a self, number: i64) -> impl Iterator<Item = &'a A>
    where
        A: 'a,
    {
        self.inside(number..number + 1).map(|pane| &pane.acc)
    }
}

/// Merges the panes of a window; `None` if each item was refused.
fn merged<G: Aggregate>(
    held: &Panes<G::Acc>,
    bounds: Bounds,
    aggregate: &mut G,
) -> Result<Option<G::Acc>, G::Error> {
    let inside = |pane: &&Pane<G::Acc>| {
        pane.items > 0
            && bounds.start <= pane.start
            && pane.start < bounds.end
            && pane.first_end <= bounds.end
    };
    let mut panes = held.panes.iter().filter(inside).peekable();
    if panes.peek().is_none() {
        return Ok(None);
    }
    let mut acc = aggregate.initial()?;
    for pane in panes {
        aggregate.merge(&mut acc, &pane.acc)?;
    }
    Ok(Some(acc))
}
