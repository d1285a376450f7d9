//! Spinning for input before the thread sleeps.
//!
//! The wake-up of a sleeping thread takes about 5 us, and 30 to 50 us on a virtual machine whose core has stopped. A
//! client that sends one request at a time waits for it each time. So the thread of the connections polls for a while
//! before it sleeps, as Go's scheduler and Linux with `net.core.busy_poll` do. It does so only if that would have
//! helped the last time: slower clients cost nothing. It does not spin while a reply waits for a commit, as the disk
//! takes the time then, nor while other programs need the core.

use std::rc::Rc;
use std::time::Duration;

use super::core::Core;
use crate::clock;
use millstream_journal::contention::{Contention, waited_by_this_thread};

/// Spins as long as requests come quickly, forever. The next must come within `limits.spin`; 0 disables spinning.
pub(super) async fn run(core: Rc<Core>) {
    let mut quiet_us = 0;
    let mut contention = Contention::new(waited_by_this_thread());
    loop {
        let spin_us = core.with(|state| state.live.limits.spin.as_micros() as u64);
        if spin_us == 0 {
            core.with(|state| state.spinning = true);
            core.spin_changed.notified().await;
            continue;
        }
        core.with(|state| state.spinning = false);
        core.input_arrived.notified().await;
        let now_us = clock::steady_us();
        quiet_us = if is_quick(now_us - quiet_us, spin_us) {
            match spin(&core, now_us, spin_us, |now_us| contention.check(now_us)).await {
                Ok(last_us) => last_us,
                Err(pause_us) => {
                    tokio::time::sleep(Duration::from_micros(pause_us)).await;
                    clock::steady_us()
                }
            }
        } else {
            now_us
        };
    }
}

/// Whether input after this time, on a sleeping thread, would have reached a spinning thread in time.
fn is_quick(after_us: u64, spin_us: u64) -> bool {
    // The wake-up took time too.
    after_us < spin_us.saturating_mul(2)
}

/// Polls until no input has come for the spin time, or a commit begins. Returns the time of the last input. If others
/// need the core, the error is the time to sleep.
async fn spin(
    core: &Core,
    since_us: u64,
    spin_us: u64,
    mut contended: impl FnMut(u64) -> Option<u64>,
) -> Result<u64, u64> {
    let look = || core.with(|state| (state.reads, state.commits_begun));
    let (mut reads, commits) = look();
    let mut last_us = since_us;
    loop {
        tokio::task::yield_now().await;
        let now_us = clock::steady_us();
        let (now_reads, now_commits) = look();
        if now_commits != commits {
            return Ok(last_us);
        }
        if let Some(pause_us) = contended(now_us) {
            return Err(pause_us);
        }
        if now_reads != reads {
            (reads, last_us) = (now_reads, now_us);
        } else if now_us - last_us > spin_us {
            return Ok(last_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_wake_up_of_a_sleeper_does_not_count() {
        assert!(is_quick(10, 50) && is_quick(99, 50));
        assert!(!is_quick(100, 50) && !is_quick(u64::MAX, 50));
    }
}
