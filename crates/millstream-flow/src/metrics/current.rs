//! The operator in which a worker is.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Where a worker is, and its thread, for a view of the run. It has a cache line of its own, since the worker writes it
/// with each batch.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Current {
    node: AtomicUsize,
    /// The number of the turn that it is in; 0 between turns.
    turn: AtomicU64,
    thread: AtomicU32,
}

impl Current {
    pub(crate) fn set(&self, node: usize) {
        self.node.store(node, Ordering::Relaxed);
    }
    pub(crate) fn get(&self) -> usize {
        self.node.load(Ordering::Relaxed)
    }
    pub(crate) fn begin_turn(&self, number: u64) {
        self.turn.store(number, Ordering::Relaxed);
    }
    pub(crate) fn end_turn(&self) {
        self.turn.store(0, Ordering::Relaxed);
    }
    /// The number of the turn that the worker is in, if it is in one.
    pub(crate) fn turn(&self) -> Option<u64> {
        Some(self.turn.load(Ordering::Relaxed)).filter(|turn| *turn > 0)
    }
    /// Notes that the calling thread is that of the worker.
    pub(crate) fn begin(&self) {
        let path = std::fs::read_link("/proc/thread-self").unwrap_or_default();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        self.thread.store(number.unwrap_or(0), Ordering::Relaxed);
    }
    /// The number of the thread in the operating system, once it is known.
    pub(crate) fn thread(&self) -> Option<u32> {
        Some(self.thread.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }
}
