//! How much memory all queues of a server or process hold together.
//!
//! The counter is shared by all queues. Whoever changes it has the queues for itself, so that it needs no atomic addition: the atomics only
//! make it shareable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A handle to the count of bytes, and to its limit.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    used: AtomicU64,
    max: AtomicU64,
}

impl Default for MemoryBudget {
    /// Without a limit.
    fn default() -> Self {
        MemoryBudget(Arc::new(Counts {
            used: AtomicU64::new(0),
            max: AtomicU64::new(u64::MAX),
        }))
    }
}

impl MemoryBudget {
    /// Bytes in use, about.
    #[inline]
    pub(crate) fn used(&self) -> u64 {
        self.0.used.load(Relaxed)
    }

    /// Whether so many bytes more are over the limit.
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
