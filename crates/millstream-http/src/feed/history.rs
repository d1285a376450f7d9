//! The items that a client missed: a feed with a history sends them when the client resumes.
//!
//! Items have dense numbers. A client reads the history at its own pace, up to the items that were sent to the others,
//! and joins those then.

use millstream_flow::error::Cause;

use super::item::Item;
use crate::refusal::Refusal;

/// The items of a feed since its beginning.
pub(crate) trait History: Send + Sync {
    /// The id from which a client resumes that has all items before number `next`.
    fn id(&self, next: u64) -> Result<String, Refusal>;

    /// The items after that with this id.
    ///
    /// # Errors
    /// An id that is none, or after which not all items are there.
    fn after(&self, id: &str) -> Result<Box<dyn Missed>, Refusal>;
}

/// The items that a client missed.
pub(crate) trait Missed: Send {
    /// The number of the next item.
    fn next(&self) -> u64;

    /// Reads the next items, some at a time, none from number `before` on. It may wait for a disk.
    fn read(&mut self, before: u64) -> Result<Vec<Item>, Cause>;
}
