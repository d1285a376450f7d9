//! What is counted for one queue.

use super::refusals::RefusedItems;

/// What was counted for one queue since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    pub(crate) total_items: u64,
    /// Of these, the items that were there at the start.
    pub(crate) restored_items: u64,
    pub(crate) expired_items: u64,
    /// Of these, the items that moved to another queue.
    pub(crate) expired_moved: u64,
    pub(crate) discarded: u64,
    pub(crate) failed_items: u64,
    /// Of these, the items that moved to another queue.
    pub(crate) failed_moved: u64,
    /// Items refused, here or for the parent.
    pub(crate) refused: RefusedItems,
    /// Items of the parent that were not copied because this queue was full.
    pub(crate) skipped: u64,
    pub(crate) transactions: u64,
    pub(crate) canceled_transactions: u64,
    pub(crate) total_flushes: u64,
    /// How long the last served item had waited.
    pub(crate) age_ms: u64,
}
