//! The items on the connections between operators: how many each worker has sent into a connection and taken from it.
//!
//! Invariant: a counter is written by its worker only, without a lock, once for a packet. A reader that reads what was
//! taken before what was sent never finds more taken than sent in one process.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The items on one connection between two operators, of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct EdgeLoad {
    /// The step whose output it carries: its index in the flow.
    pub from: usize,
    /// The step that reads it.
    pub to: usize,
    /// Items that workers of this process have sent.
    pub sent: u64,
    /// Items that workers of this process have taken.
    pub taken: u64,
}

impl EdgeLoad {
    /// Returns the items on their way. In a run of several processes that is the sum over all of them.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.taken)
    }
}

/// What one worker has sent and taken.
#[derive(Default)]
struct Count {
    sent: AtomicU64,
    taken: AtomicU64,
}

/// The counters of all connections of a run.
#[derive(Default)]
pub(crate) struct EdgeCounts {
    /// The steps at the two ends of each connection.
    ends: Vec<(usize, usize)>,
    /// By worker of this process, then by connection.
    workers: Vec<Vec<Count>>,
    first: usize,
}

impl EdgeCounts {
    /// Counters of connections between these steps, for the workers of this process.
    pub(crate) fn new(ends: Vec<(usize, usize)>, local: Range<usize>) -> Self {
        let counts = || ends.iter().map(|_| Count::default()).collect();
        EdgeCounts {
            first: local.start,
            workers: local.map(|_| counts()).collect(),
            ends,
        }
    }

    fn count(&self, worker: usize, edge: usize) -> Option<&Count> {
        self.workers.get(worker.checked_sub(self.first)?)?.get(edge)
    }

    /// Worker `worker`, which calls this, has sent items.
    pub(crate) fn sent(&self, worker: usize, edge: usize, items: usize) {
        if let Some(count) = self.count(worker, edge) {
            add(&count.sent, items);
        }
    }

    /// Worker `worker`, which calls this, has taken items.
    pub(crate) fn taken(&self, worker: usize, edge: usize, items: usize) {
        if let Some(count) = self.count(worker, edge) {
            add(&count.taken, items);
        }
    }

    /// Returns the loads of all connections.
    pub(crate) fn loads(&self) -> Vec<EdgeLoad> {
        let sum = |edge: usize, of: fn(&Count) -> &AtomicU64| -> u64 {
            let counts = self.workers.iter().filter_map(|worker| worker.get(edge));
            counts.map(|count| of(count).load(Ordering::Acquire)).sum()
        };
        let load = |(edge, &(from, to))| {
            let taken = sum(edge, |count| &count.taken);
            let sent = sum(edge, |count| &count.sent);
            EdgeLoad {
                from,
                to,
                sent,
                taken,
            }
        };
        self.ends.iter().enumerate().map(load).collect()
    }
}

/// Adds to a counter that this thread alone writes.
fn add(counter: &AtomicU64, items: usize) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before + items as u64, Ordering::Release);
}
