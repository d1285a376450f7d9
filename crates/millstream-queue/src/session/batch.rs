//! `get QUEUE/max=N`: up to N items of a queue in one answer.
//!
//! The first item is found as without `max`, after a wait if need be. The others are what is there then, in rounds, so
//! that other connections come between. All items of an answer are of one queue.
//!
//! The invariant: after the first item, an item is taken only if all of its key together fit into the limit on output.
//! The others stay in the queue.

use std::sync::Arc;

use crate::protocol::GetKey;

/// A key of a `get`, as it was sent and as it was parsed.
pub(super) struct Asked<'a> {
    pub(super) word: &'a [u8],
    pub(super) key: &'a GetKey<'a>,
    /// Whether the id of each item is wanted.
    pub(super) with_id: bool,
}

/// What is left of the key of a `get` that takes several items.
#[derive(Debug)]
pub(super) struct Batch {
    /// The queue from which the first item came, if the key names several.
    pub(super) queue: Option<Arc<str>>,
    pub(super) left: u64,
    /// The bytes of the answer so far.
    pub(super) bytes: usize,
}

impl Batch {
    /// The batch of `items_max` items, of which the first was answered with so many bytes.
    #[cold]
    pub(super) fn after_first(bytes: usize, queue: Option<Arc<str>>, items_max: u64) -> Self {
        Batch {
            queue,
            left: items_max - 1,
            bytes,
        }
    }
}
