//! A clock that a test sets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::mutex::lock;
use crate::time::nanos;

/// A clock that a test sets, and that is passed to a run as its processing time.
///
/// A script that [advances](crate::testing::Mark::Advance) it sets it back when a run resumes before the mark, so that
/// repeated events occur at the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<ClockState>);

#[derive(Debug, Default)]
struct ClockState {
    now: AtomicI64,
    advances: Mutex<Advances>,
}

/// The time of the clock is the sum of these fields.
#[derive(Debug, Default)]
struct Advances {
    by_hand: i64,
    by_script: HashMap<usize, i64>,
}

impl VirtualClock {
    /// Creates a clock at `at`, nanoseconds since 1970.
    #[must_use]
    pub fn starting_at(at: i64) -> Self {
        let clock = VirtualClock::default();
        clock.set(at);
        clock
    }

    /// Advances the clock.
    pub fn advance(&self, time: Duration) {
        self.change(|advances| advances.by_hand = advances.by_hand.saturating_add(nanos(time)));
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, at: i64) {
        self.change(|advances| {
            advances.by_hand = at.saturating_sub(advances.by_script.values().sum())
        });
    }

    /// Sets by how much one script has advanced the clock since the script's beginning. `script` identifies the
    /// script.
    pub fn advanced_by(&self, script: usize, total: Duration) {
        self.change(|advances| {
            advances.by_script.insert(script, nanos(total));
        });
    }

    /// Whether this is the same clock.
    #[must_use]
    pub fn is(&self, other: &VirtualClock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn change(&self, change: impl FnOnce(&mut Advances)) {
        let mut advances = lock(&self.0.advances);
        change(&mut advances);
        let scripts: i64 = advances.by_script.values().sum();
        let now = advances.by_hand.saturating_add(scripts);
        self.0.now.store(now, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn time_ns(&self) -> i64 {
        self.0.now.load(Ordering::SeqCst)
    }
    // A change of the clock wakes no worker: a waiting worker checks every millisecond.
    fn wait_ns(&self, at: i64) -> u64 {
        if self.time_ns() >= at { 0 } else { 1_000_000 }
    }
}
