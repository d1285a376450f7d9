//! Timers: timed work of the broker, and time limits of connections.

use std::rc::Rc;
use std::time::Duration;

use millstream_journal::chain;
use tracing::{debug, error};

use super::core::{Core, State};
use crate::clock;
use crate::connection::ConnectionId;

/// The interval between two checks of all connections.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Runs the timed work of the broker, forever.
pub(super) async fn run(core: Rc<Core>) {
    loop {
        let changed = core.timer_changed.notified();
        let next = core.with(|state| {
            state.timer_us = state.broker.next_event();
            state.timer_us
        });
        match next {
            None => changed.await,
            Some(next_us) => {
                let left_us = next_us.saturating_sub(clock::now().steady_us);
                if left_us == 0 {
                    // What the last round has left: the connections come first.
                    tokio::task::yield_now().await;
                } else if tokio::time::timeout(Duration::from_micros(left_us), changed)
                    .await
                    .is_ok()
                {
                    continue;
                }
            }
        }
        core.with(|state| {
            if let Err(error) = state.broker.run_due(clock::now()) {
                error!("{}", chain(&error));
            }
            if state.broker.take_commit_wanted() {
                core.commit_wanted.notify_one();
            }
            core.wake_and_set_timer(state);
        });
    }
}

/// Ends connections that have timed out, forever.
pub(super) async fn sweep(core: Rc<Core>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let now_us = clock::now().steady_us;
        core.with(|state| {
            let State {
                broker, entries, ..
            } = state;
            for (number, entry) in entries.iter_mut().enumerate() {
                let Some(entry) = entry
                    .as_mut()
                    .filter(|entry| entry.until_us < now_us && !entry.timed_out)
                else {
                    continue;
                };
                if entry.may_work && broker.has_open(ConnectionId(number as u32), None) {
                    continue;
                }
                debug!("connection {number} has used up its time");
                entry.timed_out = true;
                entry.waker.wake_by_ref();
            }
        });
    }
}
