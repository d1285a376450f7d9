//! How a server ended: its thread sets it once, and one waiter takes it.
//!
//! The invariant: a failure is taken or logged, never neither.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_journal::chain;
use tracing::error;

use super::error::ServerError;

/// The end of a server with this directory.
#[derive(Debug)]
pub(super) struct Outcome {
    dir: PathBuf,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    has_ended: bool,
    /// Until it is taken.
    result: Option<Result<(), ServerError>>,
    /// Nothing will take it.
    is_abandoned: bool,
    /// The task that waits.
    waker: Option<Waker>,
}

impl State {
    fn take(&mut self) -> Result<(), ServerError> {
        self.result.take().unwrap_or(Err(ServerError::NotRunning))
    }
}

impl Outcome {
    pub(super) fn new(dir: PathBuf) -> Self {
        Outcome {
            dir,
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is complete at every moment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has ended.
    pub(super) fn set(&self, result: Result<(), ServerError>) {
        let waker = {
            let mut state = self.lock();
            state.has_ended = true;
            state.result = Some(result);
            self.log_abandoned(&mut state);
            state.waker.take()
        };
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the end of the server, and takes the result.
    pub(super) fn wait(&self) -> Result<(), ServerError> {
        let state = self.lock();
        let state = self.ended.wait_while(state, |state| !state.has_ended);
        state.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the end of the server, at most for `limit`. Returns whether it has ended.
    pub(super) fn ended_within(&self, limit: Duration) -> bool {
        let state = self.lock();
        let waited = self
            .ended
            .wait_timeout_while(state, limit, |state| !state.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    /// Takes the result when the server has ended; `context` is woken then.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), ServerError>> {
        let mut state = self.lock();
        if state.has_ended {
            return Poll::Ready(state.take());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Nothing will take the result: a failure is logged, now or when it occurs.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.is_abandoned = true;
        self.log_abandoned(&mut state);
    }

    fn log_abandoned(&self, state: &mut State) {
        if state.is_abandoned
            && let Some(Err(error)) = state.result.take()
        {
            error!(
                "{}: the server of the queues has failed, and its handle was dropped without a wait for it: {}",
                self.dir.display(),
                chain(&error)
            );
        }
    }
}
