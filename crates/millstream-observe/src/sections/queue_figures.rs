//! The queues of a server at one moment, as the page, the JSON and the metrics show them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ages::{Ages, BUCKETS};

/// The number of queues in a snapshot; further ones are found by a search.
pub const SHOWN_MAX: usize = 100;
/// The number of queues that have metrics of their own. The others are reported together, as queue `other`.
pub const LABELLED_MAX: usize = 500;

/// The queues of a server. Rates are those of the last second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueuesSnapshot {
    /// `up`, `read only` or `quiescent`.
    pub status: Cow<'static, str>,
    /// Seconds since the server started.
    pub uptime_seconds: f64,
    /// Seconds since the server published its figures, which it does once a second.
    pub silent_seconds: f64,
    /// The number of queues.
    pub count: usize,
    /// The number of queues that have no metrics of their own.
    pub unlabelled: usize,
    /// Clients that are connected.
    pub connections: u64,
    /// Memory of all items in bytes.
    pub memory_bytes: u64,
    /// The most that it may be; `None` without a limit.
    pub memory_bytes_max: Option<u64>,
    /// All queues together.
    pub total: QueueSnapshot,
    /// How long sets, gets and syncs took since the server started.
    pub latencies: Vec<LatencySnapshot>,
    /// Wrong passwords since the server started.
    pub auth_failures: u64,
    /// Why the server answers nothing: not all followers of its changes that count acknowledge, or its lease is over.
    pub held: Option<String>,
    /// Whether no other machine could take over from a server with an arbiter.
    pub is_alone: bool,
    /// The machine that this one follows, which serves the queues.
    pub leader: Option<String>,
    /// Why it does not follow.
    pub trouble: Option<String>,
    /// The queues that need attention most, at most 100, by name.
    pub queues: Vec<QueueSnapshot>,
    /// Queues that could not be opened, at most 100.
    pub closed: Vec<ClosedQueue>,
    /// The number of such queues.
    pub closed_count: usize,
    /// The queues with metrics of their own, and the others together as the last one.
    #[serde(skip)]
    pub labelled: Vec<QueueSnapshot>,
}

/// One queue. Counts are those since the server started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueSnapshot {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub state: QueueState,
    /// Items that are ready, in the backlog or delayed.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Disk space in bytes.
    pub disk_bytes: u64,
    /// Age of the oldest item that waits.
    pub oldest_seconds: f64,
    /// Items that connections have open.
    pub open_items: u64,
    /// Age of the oldest of them.
    pub oldest_open_seconds: f64,
    /// For how long a connection has had its oldest item open, the slowest one.
    pub held_seconds: f64,
    /// The client of that connection.
    pub held_by: Option<String>,
    /// Connections that wait for an item.
    pub waiters: u64,
    /// Items added a second.
    pub in_rate: f64,
    /// Items that left a second: confirmed, or flushed.
    pub out_rate: f64,
    /// Items that expired a second.
    pub expired_rate: f64,
    /// Items added.
    pub in_items: u64,
    /// Items that left: confirmed, or flushed.
    pub out_items: u64,
    /// Items that expired.
    pub expired_items: u64,
    /// Of these, the items that moved to another queue.
    pub expired_moved_items: u64,
    /// Items removed because the queue was full.
    pub discarded_items: u64,
    /// Items that were delivered too often.
    pub failed_items: u64,
    /// Of these, the items that moved to another queue.
    pub failed_moved_items: u64,
    /// Items refused.
    pub refused: RefusedItems,
    /// Items of the parent that were not copied because the queue was full.
    pub skipped_items: u64,
    /// Why the last item could not be written.
    pub fault: Option<String>,
    /// Open items that were requeued.
    pub requeued_items: u64,
    /// The sync policy.
    pub sync: String,
}

/// Items that a queue refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RefusedItems {
    /// The queue was full.
    pub full: u64,
    /// Larger than an item may be.
    pub too_large: u64,
    /// Their ids were new, and the queue remembered as many as it may.
    pub too_many_ids: u64,
    /// The queue keeps no items and had no fan-out queue.
    pub no_fanout: u64,
    /// The disk was full, or failed.
    pub disk: u64,
}

impl RefusedItems {
    /// The number of each reason, by the name that the metrics have.
    pub(crate) fn by_reason(self) -> [(&'static str, u64); 5] {
        [
            ("full", self.full),
            ("too_large", self.too_large),
            ("too_many_ids", self.too_many_ids),
            ("no_fanout", self.no_fanout),
            ("disk", self.disk),
        ]
    }
}

/// What is wrong with a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueState {
    /// Nothing.
    #[default]
    Good,
    /// Items wait and no client takes any.
    Unread,
    /// Items wait, and a client keeps an item open.
    Stuck,
}

impl QueueState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QueueState::Good => "good",
            QueueState::Unread => "unread",
            QueueState::Stuck => "stuck",
        }
    }
}

/// A queue that could not be opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClosedQueue {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// How long something took since the server started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencySnapshot {
    /// `set`, `get` or `sync`.
    pub name: Cow<'static, str>,
    /// Percentiles in seconds.
    #[serde(flatten)]
    pub ages: Option<Ages>,
    /// The sum in seconds, and the counts in the buckets of `/metrics`.
    #[serde(skip)]
    pub buckets: (f64, [u64; BUCKETS.len() + 1]),
}

impl QueueSnapshot {
    /// Adds another queue: sums, and the largest times.
    pub(crate) fn add(&mut self, other: &QueueSnapshot) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.disk_bytes += other.disk_bytes;
        self.oldest_seconds = self.oldest_seconds.max(other.oldest_seconds);
        self.open_items += other.open_items;
        self.oldest_open_seconds = self.oldest_open_seconds.max(other.oldest_open_seconds);
        self.held_seconds = self.held_seconds.max(other.held_seconds);
        self.waiters += other.waiters;
        self.in_rate += other.in_rate;
        self.out_rate += other.out_rate;
        self.expired_rate += other.expired_rate;
        self.in_items += other.in_items;
        self.out_items += other.out_items;
        self.expired_items += other.expired_items;
        self.expired_moved_items += other.expired_moved_items;
        self.discarded_items += other.discarded_items;
        self.failed_items += other.failed_items;
        self.failed_moved_items += other.failed_moved_items;
        self.refused.full += other.refused.full;
        self.refused.too_large += other.refused.too_large;
        self.refused.too_many_ids += other.refused.too_many_ids;
        self.refused.no_fanout += other.refused.no_fanout;
        self.refused.disk += other.refused.disk;
        self.skipped_items += other.skipped_items;
        if self.fault.is_none() {
            self.fault.clone_from(&other.fault);
        }
        self.requeued_items += other.requeued_items;
    }
}
