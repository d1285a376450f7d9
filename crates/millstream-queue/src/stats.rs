//! What is counted, and how `stats` and `dump_stats` say it.

/// Counted for each queue since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounters {
    pub(crate) total_items: u64,
    pub(crate) expired_items: u64,
    pub(crate) discarded: u64,
    pub(crate) failed_items: u64,
    pub(crate) transactions: u64,
    pub(crate) canceled_transactions: u64,
    pub(crate) total_flushes: u64,
    /// How long the item that was served last had waited.
    pub(crate) age_ms: u64,
}

/// Counted for all queues since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections made.
    pub total_connections: u64,
    /// Keys of `get` and `gets`, peeks not counted.
    pub cmd_get: u64,
    /// `set`s.
    pub cmd_set: u64,
    /// Peeks.
    pub cmd_peek: u64,
    /// Keys for which there was an item.
    pub get_hits: u64,
    /// Keys for which there was none.
    pub get_misses: u64,
    /// Bytes that clients sent.
    pub bytes_read: u64,
    /// Bytes that were sent to clients.
    pub bytes_written: u64,
    /// Queues that came to be.
    pub queue_creates: u64,
    /// Queues that were deleted by a client.
    pub queue_deletes: u64,
    /// Queues that were deleted because they were empty for too long.
    pub queue_expires: u64,
    /// Items that came in, all queues together.
    pub total_items: u64,
}
