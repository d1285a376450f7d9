//! The items of a queue that are in memory, in the order in which they are served.
//!
//! Most items arrive at the end of `fifo` and leave at its front. Items that are requeued, or whose delay is over,
//! are in `returned`, ordered by id. An item that expires within the FIFO leaves a gap; gaps are removed when they
//! are more than half.
//!
//! The invariant: `returned` and `fifo` are sorted by id, and the smallest id of both leaves next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::item::Item;
use crate::moment::Moment;
use crate::queue::memory_budget::MemoryBudget;

/// What an item costs besides its bytes: its entry, and the allocation of its bytes.
pub(super) const ITEM_OVERHEAD_BYTES: u64 = 96;
const GAPS_MIN: usize = 1024;

/// The memory of an item, approximately.
#[inline]
pub(super) fn bytes_in_memory(item: &Item) -> u64 {
    item.body.len() as u64 + ITEM_OVERHEAD_BYTES + item.history_bytes()
}

#[derive(Debug, Default)]
pub(super) struct Ready {
    returned: BTreeMap<u64, Item>,
    fifo: VecDeque<Slot>,
    gaps: usize,
    /// Expiry and id of each item that has an expiry.
    expiries: BTreeSet<(u64, u64)>,
    bytes_in_memory: u64,
    /// The budget of all queues, which includes these bytes.
    memory: MemoryBudget,
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.memory.remove(self.bytes_in_memory);
    }
}

/// A gap keeps the id of its item, so that the FIFO can be searched.
#[derive(Debug)]
enum Slot {
    Item(Item),
    Gap(u64),
}

impl Slot {
    fn id(&self) -> u64 {
        match self {
            Slot::Item(item) => item.id,
            Slot::Gap(id) => *id,
        }
    }

    fn item(&self) -> Option<&Item> {
        match self {
            Slot::Item(item) => Some(item),
            Slot::Gap(_) => None,
        }
    }

    fn into_item(self) -> Option<Item> {
        match self {
            Slot::Item(item) => Some(item),
            Slot::Gap(_) => None,
        }
    }
}

impl Ready {
    /// No items. Their memory counts in `memory` too.
    pub(super) fn new(memory: MemoryBudget) -> Self {
        let mut ready = Ready::default();
        ready.memory = memory;
        ready
    }

    /// The number of items.
    pub(super) fn len(&self) -> usize {
        self.returned.len() + self.fifo.len() - self.gaps
    }

    /// Bytes in memory, approximately.
    pub(super) fn bytes_in_memory(&self) -> u64 {
        self.bytes_in_memory
    }

    /// Adds the newest item at the end.
    #[inline]
    pub(super) fn push(&mut self, item: Item) {
        self.count(&item);
        self.fifo.push_back(Slot::Item(item));
    }

    /// Adds an item that was delayed, open or taken, in the order of its id.
    pub(super) fn insert(&mut self, item: Item) {
        self.count(&item);
        self.returned.insert(item.id, item);
    }

    /// Whether the FIFO has no items.
    #[inline]
    pub(super) fn fifo_is_empty(&self) -> bool {
        self.fifo.len() == self.gaps
    }

    /// The id of the next item.
    pub(super) fn next_id(&self) -> Option<u64> {
        self.range(0).next().map(|item| item.id)
    }

    /// Removes and returns the next item.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Item> {
        while let Some(Slot::Gap(_)) = self.fifo.front() {
            self.fifo.pop_front();
            self.gaps -= 1;
        }
        let returned = match (self.returned.first_key_value(), self.fifo.front()) {
            (Some((id, _)), Some(slot)) => *id < slot.id(),
            (returned, _) => returned.is_some(),
        };
        let item = if returned {
            self.returned.pop_first().map(|(_, item)| item)
        } else {
            self.fifo.pop_front().and_then(Slot::into_item)
        }?;
        self.uncount(&item);
        Some(item)
    }

    /// Removes and returns an item by its id.
    pub(super) fn remove(&mut self, id: u64) -> Option<Item> {
        let item = match self.returned.remove(&id) {
            Some(item) => item,
            None => self.leave_gap(id)?,
        };
        self.uncount(&item);
        Some(item)
    }

    /// Removes and returns the newest item, if it has this id.
    pub(super) fn pop_newest(&mut self, id: u64) -> Option<Item> {
        let newest = matches!(self.fifo.back(), Some(Slot::Item(item)) if item.id == id);
        let Some(Slot::Item(item)) = newest.then(|| self.fifo.pop_back()).flatten() else {
            return None;
        };
        self.uncount(&item);
        Some(item)
    }

    /// The items with this id or a later one, in order.
    pub(super) fn range(&self, from: u64) -> impl Iterator<Item = &Item> {
        let at = self.fifo.partition_point(|slot| slot.id() < from);
        let mut fifo = self.fifo.range(at..).filter_map(Slot::item).peekable();
        let mut returned = self.returned.range(from..).map(|(_, item)| item).peekable();
        std::iter::from_fn(move || match (returned.peek(), fifo.peek()) {
            (Some(one), Some(other)) if one.id > other.id => fifo.next(),
            (None, _) => fifo.next(),
            _ => returned.next(),
        })
    }

    /// The items that were requeued, and others that are ordered by id.
    pub(super) fn returned(&self) -> impl Iterator<Item = &Item> {
        self.returned.values()
    }

    /// The first expiry, on the wall clock.
    #[inline]
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.expiries.first().map(|&(expiry_ms, _)| expiry_ms)
    }

    /// Removes and returns an expired item.
    pub(super) fn pop_expired(&mut self, now: Moment) -> Option<Item> {
        let &(expiry_ms, id) = self.expiries.first()?;
        if expiry_ms > now.wall_ms {
            return None;
        }
        self.remove(id)
    }

    pub(super) fn clear(&mut self) {
        *self = Ready::new(self.memory.clone());
    }

    fn leave_gap(&mut self, id: u64) -> Option<Item> {
        let at = self.fifo.binary_search_by_key(&id, Slot::id).ok()?;
        let slot = self.fifo.get_mut(at)?;
        let Slot::Item(item) = std::mem::replace(slot, Slot::Gap(id)) else {
            return None;
        };
        self.gaps += 1;
        if self.gaps > GAPS_MIN && self.gaps * 2 > self.fifo.len() {
            self.fifo.retain(|slot| matches!(slot, Slot::Item(_)));
            self.gaps = 0;
        }
        Some(item)
    }

    #[inline]
    fn count(&mut self, item: &Item) {
        let bytes = bytes_in_memory(item);
        self.bytes_in_memory += bytes;
        self.memory.add(bytes);
        if item.expiry_ms != 0 {
            self.expiries.insert((item.expiry_ms, item.id));
        }
    }

    #[inline]
    fn uncount(&mut self, item: &Item) {
        let bytes = bytes_in_memory(item);
        self.bytes_in_memory -= bytes;
        self.memory.remove(bytes);
        if item.expiry_ms != 0 {
            self.expiries.remove(&(item.expiry_ms, item.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::operation::Head;

    fn item(id: u64, expiry_ms: u64) -> Item {
        Item::new(
            id,
            Head {
                expiry_ms,
                ..Head::default()
            },
            0,
            id.to_le_bytes().as_slice().into(),
        )
    }

    fn ids(ready: &mut Ready) -> Vec<u64> {
        std::iter::from_fn(|| ready.pop())
            .map(|item| item.id)
            .collect()
    }

    #[test]
    fn items_that_come_back_take_their_place() {
        let mut ready = Ready::default();
        (1..=5).for_each(|id| ready.push(item(id, 0)));
        let one = ready.pop().unwrap();
        let two = ready.pop().unwrap();
        ready.insert(two);
        ready.insert(one);
        assert_eq!(ids(&mut ready), [1, 2, 3, 4, 5]);
        assert_eq!(ready.bytes_in_memory(), 0);
    }

    #[test]
    fn an_item_expires_after_a_live_one_and_gaps_are_closed() {
        let mut ready = Ready::default();
        ready.push(item(0, 0));
        (1..=3000).for_each(|id| ready.push(item(id, 10)));
        ready.push(item(3001, 11));
        let now = Moment {
            wall_ms: 10,
            steady_us: 0,
        };
        let expired = std::iter::from_fn(|| ready.pop_expired(now)).count();
        assert_eq!((expired, ready.len()), (3000, 2));
        assert!(
            ready.fifo.len() < 2 * GAPS_MIN,
            "{} slots for 2 items",
            ready.fifo.len()
        );
        assert_eq!(size_of::<Slot>(), 56);
        assert_eq!(ids(&mut ready), [0, 3001]);
    }
}
