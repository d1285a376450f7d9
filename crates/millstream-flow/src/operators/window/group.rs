//! Groups of items, with the times of the first and the last: sessions, windows by number, and windows that the user
//! chooses.

use std::cell::Cell;
use std::ops::Deref;

use super::aggregate::{Aggregate, Bounds};
use super::inline_queue::InlineQueue;
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::state::Outputs;
use crate::time::Timed;

/// The items of a group in aggregated form.
pub(super) struct Group<A> {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) items: u64,
    /// How many of them were saved.
    saved: Cell<u64>,
    pub(super) acc: A,
}

impl<A> Group<A> {
    /// A group without items.
    pub(super) fn new(first: i64, last: i64, acc: A) -> Self {
        Group {
            first,
            last,
            items: 0,
            saved: Cell::new(0),
            acc,
        }
    }

    fn save_head(&self, out: &mut Vec<u8>) {
        for number in [self.first, self.last, self.items as i64] {
            pack::integer(number, out);
        }
    }

    /// Appends `[first, last, items, accumulator]`.
    fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(4, out);
        self.save_head(out);
        codec.save(&self.acc, out)?;
        self.saved.set(self.items);
        Ok(())
    }

    fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        pack::take_members(4, from)?;
        let first = pack::take_integer(from)?;
        let last = pack::take_integer(from)?;
        let items = pack::take_count(from)?;
        Ok(Group {
            items,
            saved: Cell::new(items),
            ..Group::new(first, last, codec.load(from)?)
        })
    }
}

/// Emits the result of a group that has closed, with its time and watermark.
pub(super) fn close<K, G: Aggregate>(
    mut group: Group<G::Acc>,
    bounds: Bounds,
    (time, watermark): (i64, i64),
    (aggregate, key): (&mut G, &K),
    out: &mut impl Outputs<K, G::Out, G::In>,
) -> Result<(), G::Error> {
    if let Some(value) = aggregate.result_of_any(&mut group.acc, bounds)? {
        let output = Timed {
            time,
            watermark,
            value,
        };
        out.result(key, output);
    }
    Ok(())
}

/// The open groups of a key, in an order of their own.
pub(super) struct Groups<A> {
    groups: InlineQueue<Group<A>>,
    /// Whether what was saved last are the first of them: none was removed or put before others since.
    grows: Cell<bool>,
}

impl<A> Default for Groups<A> {
    fn default() -> Self {
        Groups {
            groups: InlineQueue::default(),
            grows: Cell::new(false),
        }
    }
}

impl<A> Deref for Groups<A> {
    type Target = InlineQueue<Group<A>>;

    fn deref(&self) -> &InlineQueue<Group<A>> {
        &self.groups
    }
}

impl<A> Groups<A> {
    pub(super) fn group(&mut self, place: usize) -> &mut Group<A> {
        &mut self.groups[place]
    }

    pub(super) fn insert(&mut self, place: usize, group: Group<A>) {
        if place < self.groups.len() {
            self.grows.set(false);
        }
        self.groups.insert(place, group);
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Group<A>> {
        self.grows.set(false);
        self.groups.remove(place)
    }

    /// Appends `[[first, last, items, accumulator]...]`.
    /// Returns the bounds of each group, the number of its items and its accumulator.
    pub(super) fn each(&self) -> impl Iterator<Item = (i64, i64, u64, &A)> {
        let groups = self.groups.iter();
        groups.map(|group| (group.first, group.last, group.items, &group.acc))
    }

    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(self.groups.len(), out);
        for group in self.groups.iter() {
            group.save(codec, out)?;
        }
        self.grows.set(true);
        Ok(())
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        let mut held = Groups::default();
        for place in 0..pack::take_list(from)? {
            held.groups.insert(place, Group::load(codec, from)?);
        }
        held.grows.set(true);
        Ok(held)
    }

    /// Appends the groups with new items: `[place, first, last, items, what is added to the accumulator]` of one that
    /// was saved before, and `[first, last, items, accumulator]` of a new one. Returns false if the groups must be
    /// saved whole.
    pub(super) fn save_added(
        &self,
        codec: &dyn StateCodec<A>,
        out: &mut Vec<u8>,
    ) -> Result<bool, Cause> {
        if !self.grows.get() {
            return Ok(false);
        }
        let is_changed = |group: &Group<A>| group.items > group.saved.get();
        pack::list(
            self.groups.iter().filter(|group| is_changed(group)).count(),
            out,
        );
        for (place, group) in self.groups.iter().enumerate() {
            if !is_changed(group) {
                continue;
            }
            if group.saved.get() == 0 {
                group.save(codec, out)?;
                continue;
            }
            pack::list(5, out);
            pack::integer(place as i64, out);
            group.save_head(out);
            if !codec.save_added(&group.acc, out)? {
                return Ok(false);
            }
            group.saved.set(group.items);
        }
        Ok(true)
    }

    pub(super) fn load_added(
        &mut self,
        codec: &dyn StateCodec<A>,
        from: &mut &[u8],
    ) -> Result<(), Cause> {
        for _ in 0..pack::take_list(from)? {
            let mut members = *from;
            if pack::take_list(&mut members)? == 4 {
                let group = Group::load(codec, from)?;
                self.groups.insert(self.groups.len(), group);
                continue;
            }
            pack::take_members(5, from)?;
            let place = usize::try_from(pack::take_count(from)?)?;
            if place >= self.groups.len() {
                return Err("it has items of a group that is missing".into());
            }
            let group = &mut self.groups[place];
            group.first = pack::take_integer(from)?;
            group.last = pack::take_integer(from)?;
            group.items = pack::take_count(from)?;
            codec.load_added(&mut group.acc, from)?;
            group.saved.set(group.items);
        }
        Ok(())
    }
}
