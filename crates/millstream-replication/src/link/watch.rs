//! Waiting until one of several journals has a new record: a thread for each of them, which sleeps while the sender
//! works.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_journal::{Reader, Wait};

use super::STOP_CHECK;

/// The state that the sender and the threads share.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many times the sender has slept.
    sleeps: u64,
    asleep: bool,
    /// Records may have come that the sender has not seen.
    rung: bool,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender has seen nothing new: sleep until there is a record, for `limit` at most.
    pub fn sleep(&self, limit: Duration) {
        let mut state = self.state();
        if !state.rung {
            state.sleeps += 1;
            state.asleep = true;
            self.changed.notify_all();
            let waited = self
                .changed
                .wait_timeout_while(state, limit, |state| !state.rung);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.asleep = false;
        state.rung = false;
    }

    /// Wake the sender when the journal of `reader` has a record at the position that `sent` returns, until `ended`.
    pub fn watch_journal(&self, mut reader: Reader, sent: impl Fn() -> u64, ended: &AtomicBool) {
        let mut seen = 0;
        while !ended.load(Ordering::Relaxed) {
            let state = self.state();
            let idle = |state: &mut State| !state.asleep || state.sleeps == seen;
            let waited = self.changed.wait_timeout_while(state, STOP_CHECK, idle);
            let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                continue;
            }
            let sleeps = state.sleeps;
            drop(state);
            let came = reader.seek(sent());
            // The sender gets the same error, and reports it.
            if !matches!(
                came.and_then(|()| reader.wait(Wait::Block, Some(STOP_CHECK))),
                Ok(false)
            ) {
                seen = sleeps;
                self.state().rung = true;
                self.changed.notify_all();
            }
        }
    }
}
