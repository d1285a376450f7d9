//! A clock that a test moves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::Clock;
use crate::run::control::lock;
use crate::time::nanos;

/// A clock that a test moves by hand: handed to a run, it says which processing time it is.
///
/// A script that [advances](super::Mark::Advance) it takes that back when a run resumes before the mark:
/// what happens again happens at the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    now: AtomicI64,
    moved: Mutex<Moved>,
}

/// What the clock shows is all of these together.
#[derive(Debug, Default)]
struct Moved {
    by_hand: i64,
    by_script: HashMap<usize, i64>,
}

impl VirtualClock {
    /// A clock that shows `at`, nanoseconds since 1970.
    #[must_use]
    pub fn starting_at(at: i64) -> Self {
        let clock = VirtualClock::default();
        clock.set(at);
        clock
    }

    /// Moves the clock on.
    pub fn advance(&self, time: Duration) {
        self.change(|moved| moved.by_hand = moved.by_hand.saturating_add(nanos(time)));
    }

    /// Sets the clock, forward or back.
    pub fn set(&self, at: i64) {
        self.change(|moved| moved.by_hand = at.saturating_sub(moved.by_script.values().sum()));
    }

    /// A script, which `script` tells apart from others, has come to where it has advanced the clock by so
    /// much since its beginning.
    pub fn advanced_by(&self, script: usize, total: Duration) {
        self.change(|moved| {
            moved.by_script.insert(script, nanos(total));
        });
    }

    /// Whether this is the same clock.
    #[must_use]
    pub fn is(&self, other: &VirtualClock) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn change(&self, change: impl FnOnce(&mut Moved)) {
        let mut moved = lock(&self.0.moved);
        change(&mut moved);
        let scripts: i64 = moved.by_script.values().sum();
        let now = moved.by_hand.saturating_add(scripts);
        self.0.now.store(now, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn time_ns(&self) -> i64 {
        self.0.now.load(Ordering::SeqCst)
    }
    // Nobody says when it is moved: a worker that waits for it looks every millisecond.
    fn wait_ns(&self, at: i64) -> u64 {
        if self.time_ns() >= at { 0 } else { 1_000_000 }
    }
}
