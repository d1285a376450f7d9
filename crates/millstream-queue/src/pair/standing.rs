//! What the lease lets the server do, for its threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_journal::clock::boot_ns;

/// What one that leads may do at present.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// When the lease ends, on the clock that goes on while the machine is suspended.
    until_ns: AtomicU64,
    /// No follower counts, and the arbiter knows it: no other machine may take over.
    is_alone: AtomicBool,
    /// Another machine has the lease.
    is_lost: AtomicBool,
}

impl Standing {
    /// Whether clients may be answered now. This is asked after the answer was made: it was true while the lease was
    /// held.
    pub fn may_answer(&self) -> bool {
        boot_ns() < self.until_ns.load(Ordering::SeqCst)
    }

    /// Whether answers wait for no follower.
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::SeqCst)
    }

    /// Whether another machine has taken over.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    pub(super) fn hold_until(&self, until: Duration) {
        let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.until_ns.store(until_ns, Ordering::SeqCst);
    }

    pub(super) fn set_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::SeqCst);
    }

    pub(super) fn lose(&self) {
        self.until_ns.store(0, Ordering::SeqCst);
        self.is_lost.store(true, Ordering::SeqCst);
    }
}
