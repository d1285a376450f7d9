//! Whether other programs need the core that this thread uses: for threads that spin before they sleep.
//!
//! A thread that spins while others need its core uses up its share, and then waits for some milliseconds; a thread
//! that sleeps runs as soon as it is woken. So spinning helps only on a machine with a free core. Linux reports how
//! long a thread was ready to run and did not: the second number of `/proc/thread-self/schedstat`.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The interval between two queries of the system.
const CHECK_EVERY_US: u64 = 1_000;
/// Contention: the thread has waited for this time in total, and for this part of the time.
const WAITED_US_MIN: u64 = 1_000;
const WAITED_PART: u64 = 10;
/// How long spinning pauses after contention: from the first to the second, doubled each time.
const PAUSE_US_MIN: u64 = 250_000;
const PAUSE_US_MAX: u64 = 4_000_000;
/// After this time of spinning without contention, the next pause is a short one again.
const CALM_US: u64 = 1_000_000;

/// How long this thread has waited for a core.
pub struct Contention<W> {
    waited_us: W,
    /// The time of the last query, and its result.
    last_us: Option<(u64, u64)>,
    /// Spinning time since the last contention.
    calm_us: u64,
    pause_us: u64,
}

/// The waiting time of this thread in microseconds; `None` where the system does not report it.
pub fn waited_by_this_thread() -> impl FnMut() -> Option<u64> {
    let file = File::open("/proc/thread-self/schedstat").ok();
    move || {
        let mut text = [0; 64];
        let length = file.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(text.get(..length)?).ok()?;
        let waited_ns: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
        Some(waited_ns / 1_000)
    }
}

impl<W: FnMut() -> Option<u64>> Contention<W> {
    /// Creates the view of a thread; `waited_us` returns for how many microseconds it has waited for a core so far.
    pub fn new(waited_us: W) -> Self {
        Contention {
            waited_us,
            last_us: None,
            calm_us: 0,
            pause_us: PAUSE_US_MIN,
        }
    }

    /// Returns for how many microseconds the thread must sleep between requests, if others need its core.
    #[inline]
    pub fn check(&mut self, now_us: u64) -> Option<u64> {
        match self.last_us {
            Some((at_us, _)) if now_us.saturating_sub(at_us) < CHECK_EVERY_US => None,
            _ => self.check_now(now_us),
        }
    }

    fn check_now(&mut self, now_us: u64) -> Option<u64> {
        let waited_us = (self.waited_us)()?;
        let (at_us, before_us) = self.last_us.replace((now_us, waited_us))?;
        let passed_us = now_us.saturating_sub(at_us);
        let waited_us = waited_us.saturating_sub(before_us);
        if waited_us < WAITED_US_MIN || waited_us * WAITED_PART < passed_us {
            self.calm_us += passed_us;
            if self.calm_us >= CALM_US {
                self.pause_us = PAUSE_US_MIN;
            }
            return None;
        }
        let pause_us = self.pause_us;
        self.pause_us = (pause_us * 2).min(PAUSE_US_MAX);
        self.calm_us = 0;
        // Waiting time during the pause is not counted.
        self.last_us = None;
        Some(pause_us)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_thread_without_a_core_backs_off_longer_each_time() {
        let waited = Cell::new(Some(0));
        let mut contention = Contention::new(|| waited.get());
        let wait = |us: u64| waited.set(waited.get().map(|before| before + us));
        let mut now_us = 0;
        let mut step = |contention: &mut Contention<_>, us: u64| {
            now_us += us;
            contention.check(now_us)
        };
        assert_eq!(step(&mut contention, 5), None);
        // Some waiting is usual, and so is a long wait at times.
        wait(900);
        assert_eq!(step(&mut contention, 2_000), None);
        wait(1_500);
        assert_eq!(step(&mut contention, 20_000), None);
        wait(4_000);
        assert_eq!(step(&mut contention, 500), None, "too soon to ask");
        assert_eq!(step(&mut contention, 3_500), Some(PAUSE_US_MIN));
        // Waiting during the pause does not count, and the next pause is longer.
        wait(100_000);
        assert_eq!(step(&mut contention, PAUSE_US_MIN), None);
        for pause_us in [500_000, 1_000_000, 2_000_000, PAUSE_US_MAX, PAUSE_US_MAX] {
            wait(4_000);
            assert_eq!(step(&mut contention, 5_000), Some(pause_us));
            assert_eq!(step(&mut contention, pause_us), None);
        }
        assert_eq!(step(&mut contention, CALM_US), None);
        wait(4_000);
        assert_eq!(step(&mut contention, 5_000), Some(PAUSE_US_MIN));
        waited.set(None);
        assert_eq!(step(&mut contention, 5_000), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_how_long_this_thread_has_waited() {
        let mut waited_us = waited_by_this_thread();
        let first = waited_us().unwrap();
        assert!(waited_us().unwrap() >= first);
    }
}
