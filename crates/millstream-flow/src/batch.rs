//! Batches: what travels between steps.
//!
//! A step never sees one item alone; it is handed a batch, so that every fixed cost (a clock
//! read, a dynamic call, taking the interpreter lock) is paid per batch and not per item.
//! Rust flows use `Vec<T>`, byte connectors use [`Frames`], and the
//! Python face has its own. The engine asks no more of a batch than the few verbs below.

use crate::framing::Frames;

/// What an item of a Rust flow must be: cloneable (a stream may be used twice), sendable to
/// another worker, and free of borrowed data.
pub trait Data: Clone + Send + 'static {}
impl<T: Clone + Send + 'static> Data for T {}

/// A group of items that travels as one.
pub trait Batch: Default + Clone + Send + 'static {
    /// The number of items.
    fn len(&self) -> usize;
    /// True when there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Drops the items and keeps the memory.
    fn clear(&mut self);
}

impl<T: Data> Batch for Vec<T> {
    fn len(&self) -> usize {
        Vec::len(self)
    }
    fn clear(&mut self) {
        Vec::clear(self);
    }
}

/// The two outputs of a step that has two.
impl<A: Batch, B: Batch> Batch for (A, B) {
    fn len(&self) -> usize {
        self.0.len() + self.1.len()
    }
    fn clear(&mut self) {
        self.0.clear();
        self.1.clear();
    }
}

impl Batch for Frames {
    fn len(&self) -> usize {
        self.spans.len()
    }
    fn clear(&mut self) {
        self.spans.clear();
    }
}
