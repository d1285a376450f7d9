//! How much may be acknowledged and not durable yet, when `sync` is a time T.
//!
//! The rule: no append returns later than T after the beginning of the last sync that has ended, unless all before it
//! is durable. So the acknowledged records that a loss of power takes were acknowledged within one span of T, however
//! long a sync takes and whether or not the thread in the background gets a processor. An append that is too late
//! waits, and syncs if no other thread does.
//!
//! An append reads the wall clock anyway, for the time of its record, and compares that. The wall clock can be set: a
//! time that looks too late, or is before the last sync, is compared again by the monotonic clock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::host::Host;
use crate::mutex::lock;
use crate::options::Sync;

/// No wall clock shows a time close after this one, in ns.
const NEVER: u64 = 1 << 63;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    wall_ns: u64,
    steady: Duration,
}

impl Moment {
    pub fn now(host: &Host) -> Self {
        Moment {
            wall_ns: host.time_ns(),
            steady: host.monotonic(),
        }
    }
}

/// The bound of one opening.
pub(crate) struct Bound {
    /// T in ns: 0 when each append waits for its sync, all when none does.
    limit_ns: u64,
    /// All that was acknowledged before this moment is durable; here by the wall clock.
    since_ns: AtomicU64,
    /// And here by the steady one, once there is such a moment.
    since: Mutex<Option<Duration>>,
}

impl Bound {
    pub fn new(sync: Sync) -> Self {
        let limit_ns = match sync {
            Sync::Always => 0,
            Sync::Every(time) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            Sync::Never => u64::MAX,
        };
        Bound {
            limit_ns,
            since_ns: AtomicU64::new(NEVER),
            since: Mutex::new(None),
        }
    }

    /// Whether an append that read this time may return at once. If not, the caller must call
    /// [`allows_at`](Self::allows_at).
    #[inline]
    pub fn allows(&self, time_ns: u64) -> bool {
        // A time before that moment is a huge one after it.
        let elapsed = time_ns.wrapping_sub(self.since_ns.load(Ordering::Relaxed));
        elapsed < self.limit_ns
    }

    /// Whether an append may return at this moment.
    pub fn allows_at(&self, now: Moment) -> bool {
        let since = *lock(&self.since);
        let elapsed = since.map(|since| now.steady.saturating_sub(since));
        elapsed.is_some_and(|elapsed| elapsed < Duration::from_nanos(self.limit_ns))
    }

    /// All that was acknowledged before `moment` is durable.
    pub fn raise(&self, moment: Moment) {
        let mut since = lock(&self.since);
        if since.is_none_or(|since| since < moment.steady) {
            *since = Some(moment.steady);
            self.since_ns.store(moment.wall_ns, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_ns: u64, steady_ns: u64) -> Moment {
        Moment {
            wall_ns,
            steady: Duration::from_nanos(steady_ns),
        }
    }

    #[test]
    fn an_append_may_return_until_the_time_is_over() {
        let bound = Bound::new(Sync::Every(Duration::from_nanos(100)));
        assert!(!bound.allows(1_000) && !bound.allows_at(at(1_000, 5)));
        bound.raise(at(1_000, 5));
        assert!(bound.allows(1_000) && bound.allows(1_099) && !bound.allows(1_100));
        assert!(bound.allows_at(at(0, 104)) && !bound.allows_at(at(0, 105)));
        // The wall clock was set back: only the monotonic clock decides.
        assert!(!bound.allows(999));
        bound.raise(at(500, 50));
        bound.raise(at(1_100, 40));
        assert!(bound.allows(599) && !bound.allows(1_100));
    }

    #[test]
    fn never_and_always_need_no_clock() {
        let never = Bound::new(Sync::Never);
        let always = Bound::new(Sync::Always);
        for time_ns in [0, 1, NEVER - 2, NEVER, u64::MAX] {
            assert!(never.allows(time_ns) && !always.allows(time_ns));
        }
    }
}
