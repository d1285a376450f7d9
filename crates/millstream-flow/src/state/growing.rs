//! A list in the state of a key, of which an epoch saves what was added to it.
//!
//! ```
//! use millstream_flow::state::Growing;
//!
//! let mut list = Growing::default();
//! list.push("a");
//! assert_eq!(list.added(), None); // nothing is saved yet
//! list.set_saved();
//! list.push("b");
//! assert_eq!(list.added(), Some(&["b"][..]));
//! list.change().reverse();
//! assert_eq!(list.added(), None);
//! ```

use std::cell::Cell;
use std::ops::Deref;

/// A list that knows how many of its members are saved.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Growing<T> {
    items: Vec<T>,
    /// The number of its first members that are saved; `None` if what is saved is another list.
    saved: Cell<Option<usize>>,
}

impl<T> Default for Growing<T> {
    fn default() -> Self {
        Growing {
            items: Vec::new(),
            saved: Cell::new(None),
        }
    }
}

impl<T> Deref for Growing<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> Extend<T> for Growing<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.items.extend(items);
    }
}

impl<T> Growing<T> {
    /// Adds a member.
    pub fn push(&mut self, item: T) {
        self.items.push(item);
    }

    /// Returns the list for changes of any kind: it must be saved whole afterwards.
    pub fn change(&mut self) -> &mut Vec<T> {
        self.saved.set(None);
        &mut self.items
    }

    /// Returns the members that were added since the list was saved or loaded; `None` if it must be saved whole.
    #[must_use]
    pub fn added(&self) -> Option<&[T]> {
        self.items.get(self.saved.get()?..)
    }

    /// All members are saved, or were loaded.
    pub fn set_saved(&self) {
        self.saved.set(Some(self.items.len()));
    }
}
