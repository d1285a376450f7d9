//! Staying awake for a moment.
//!
//! A thread that sleeps is woken in 5 us or so, and in 30 to 50 on a virtual machine, whose core has stopped meanwhile. A client that
//! sends one request after the other waits for that each time. So the thread of the connections looks for a while whether more comes
//! before it sleeps, as Go's scheduler does, and Linux with `net.core.busy_poll`. It does so only if that would have helped the last
//! time: clients that take longer cost nothing. Nor does it where somebody waits for a commit: then the disk takes the time; or where other
//! programs want the cores.

use std::rc::Rc;
use std::time::Duration;

use super::contention::{Contention, waited_by_this_thread};
use super::core::Core;
use crate::clock;

/// Stay awake as long as requests come quickly, for ever. `limits.spin` is the time in which the next must come; while it is 0,
/// nothing is looked for.
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
        quiet_us = match is_quick(now_us - quiet_us, spin_us) {
            true => match spin(&core, now_us, spin_us, |now_us| contention.check(now_us)).await {
                Ok(last_us) => last_us,
                Err(pause_us) => {
                    tokio::time::sleep(Duration::from_micros(pause_us)).await;
                    clock::steady_us()
                }
            },
            false => now_us,
        };
    }
}

/// Whether what came after so long, to a thread that slept, would have come in time to one that had not.
fn is_quick(after_us: u64, spin_us: u64) -> bool {
    // To be woken took a while too.
    after_us < spin_us.saturating_mul(2)
}

/// Look for more until nothing has come for the time, or a commit begins; gives when the last came. If others want the core, the error is
/// for how long that is better left.
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
    fn who_sleeps_is_woken_late_and_that_counts_for_nothing() {
        assert!(is_quick(10, 50) && is_quick(99, 50));
        assert!(!is_quick(100, 50) && !is_quick(u64::MAX, 50));
    }
}
