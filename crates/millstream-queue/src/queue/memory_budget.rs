//! The memory of all queues of a server or process, and its limit.
//!
//! All queues share the counter. Only the thread that has exclusive access to the queues changes it, so that no
//! atomic addition is needed: the atomics only make it shareable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A handle to the number of bytes in use and to its limit.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    used: AtomicU64,
    max: AtomicU64,
}

impl Default for MemoryBudget {
    /// No limit.
    fn default() -> Self {
        MemoryBudget(Arc::new(Counts {
            used: AtomicU64::new(0),
            max: AtomicU64::new(u64::MAX),
        }))
    }
}

impl MemoryBudget {
    /// Bytes in use, approximately.
    #[inline]
    pub(crate) fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Whether `more` bytes would exceed the limit.
    #[inline]
    pub(crate) fn is_over(&self, more: u64) -> bool {
        self.used().saturating_add(more) > self.0.max.load(Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        self.0.used.store(self.used() + bytes, Relaxed);
    }

    #[inline]
    pub(crate) fn remove(&self, bytes: u64) {
        self.0
            .used
            .store(self.used().saturating_sub(bytes), Relaxed);
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.0.max.store(max, Relaxed);
    }
}
