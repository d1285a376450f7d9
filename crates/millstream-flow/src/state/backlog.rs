//! A queue in the state of a key, of which an epoch saves what has changed: how many were taken from its front, and
//! what was added.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::error::Cause;
use crate::saved::pack;

/// A queue that knows which of its items are saved. Items are added anywhere and taken from the front.
pub(crate) struct Backlog<T> {
    entries: VecDeque<Entry<T>>,
    /// How many saved items were taken since the last save.
    taken: Cell<usize>,
}

struct Entry<T> {
    item: T,
    saved: Cell<bool>,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Backlog {
            entries: VecDeque::new(),
            taken: Cell::new(0),
        }
    }
}

impl<T> Backlog<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.entries.front().map(|entry| &entry.item)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.item)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|entry| &mut entry.item)
    }

    /// Adds an item after those at the end that do not come after it.
    pub(crate) fn insert_before(&mut self, item: T, comes_after: impl Fn(&T) -> bool) {
        let later = self.entries.iter().rev();
        let later = later.take_while(|other| comes_after(&other.item));
        let place = self.entries.len() - later.count();
        let saved = Cell::new(false);
        self.entries.insert(place, Entry { item, saved });
    }

    pub(crate) fn push_back(&mut self, item: T) {
        let saved = Cell::new(false);
        self.entries.push_back(Entry { item, saved });
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.taken
            .set(self.taken.get() + usize::from(entry.saved.get()));
        Some(entry.item)
    }

    pub(crate) fn clear(&mut self) {
        while self.pop_front().is_some() {}
    }

    /// The items that are saved. They are the first ones where items are added at the end only.
    pub(crate) fn saved(&self) -> impl Iterator<Item = &T> {
        let saved = self.entries.iter().filter(|entry| entry.saved.get());
        saved.map(|entry| &entry.item)
    }

    /// Appends `[item...]`.
    pub(crate) fn save(
        &self,
        out: &mut Vec<u8>,
        mut save: impl FnMut(&T, &mut Vec<u8>) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        pack::list(self.entries.len(), out);
        for entry in &self.entries {
            save(&entry.item, out)?;
            entry.saved.set(true);
        }
        self.taken.set(0);
        Ok(())
    }

    /// Decodes what `save` has appended.
    pub(crate) fn load(
        from: &mut &[u8],
        load: impl FnMut(&mut &[u8]) -> Result<T, Cause>,
    ) -> Result<Self, Cause> {
        let mut held = Backlog::default();
        held.add_loaded(from, load, Backlog::push_back)?;
        Ok(held)
    }

    /// Appends what has changed since the queue was saved or loaded: `taken, [item...]`, with the items that were
    /// added.
    pub(crate) fn save_changes(
        &self,
        out: &mut Vec<u8>,
        mut save: impl FnMut(&T, &mut Vec<u8>) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        let added = || self.entries.iter().filter(|entry| !entry.saved.get());
        pack::integer(self.taken.get() as i64, out);
        pack::list(added().count(), out);
        for entry in added() {
            save(&entry.item, out)?;
            entry.saved.set(true);
        }
        self.taken.set(0);
        Ok(())
    }

    /// Repeats the changes that `save_changes` has appended; `add` adds an item as it was added at first.
    pub(crate) fn load_changes(
        &mut self,
        from: &mut &[u8],
        load: impl FnMut(&mut &[u8]) -> Result<T, Cause>,
        add: impl Fn(&mut Self, T),
    ) -> Result<(), Cause> {
        for _ in 0..pack::take_count(from)? {
            self.entries
                .pop_front()
                .ok_or("more items were taken from it than it has")?;
        }
        self.add_loaded(from, load, add)
    }

    fn add_loaded(
        &mut self,
        from: &mut &[u8],
        mut load: impl FnMut(&mut &[u8]) -> Result<T, Cause>,
        add: impl Fn(&mut Self, T),
    ) -> Result<(), Cause> {
        for _ in 0..pack::take_list(from)? {
            add(self, load(from)?);
        }
        self.entries.iter().for_each(|entry| entry.saved.set(true));
        Ok(())
    }
}

/// The bytes of a state that was saved whole and of its changes since. Once the changes have as many, the state is
/// saved whole again, so that what is read at a start has at most twice the bytes of the state.
#[derive(Default)]
pub(crate) struct Chain {
    whole: Cell<usize>,
    changes: Cell<usize>,
}

impl Chain {
    pub(crate) fn saved_complete(&self, bytes: usize) {
        self.whole.set(bytes);
        self.changes.set(0);
    }

    pub(crate) fn saved_changes(&self, bytes: usize) {
        self.changes.set(self.changes.get() + bytes);
    }

    /// Whether the next save may append changes.
    pub(crate) fn takes_changes(&self) -> bool {
        self.changes.get() < self.whole.get()
    }
}
