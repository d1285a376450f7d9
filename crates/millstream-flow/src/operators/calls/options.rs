//! The options of calls of an asynchronous function.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::policy::OnError;

/// The options of calls of an asynchronous function.
#[derive(Clone)]
pub struct Calls {
    pub(super) concurrency: usize,
    pub(super) ordered: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) retries: u32,
    pub(super) retry_pause: Duration,
    pub(super) on_error: OnError,
    pub(super) runtime: Option<Handle>,
}

impl Default for Calls {
    fn default() -> Self {
        Calls {
            concurrency: 16,
            ordered: true,
            timeout: None,
            retries: 0,
            retry_pause: Duration::from_millis(100),
            on_error: OnError::Fail,
            runtime: None,
        }
    }
}

impl Calls {
    /// At most 16 calls at once on each worker, answers in the order of the items, no retries and no timeout.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the largest number of calls at once on each worker. If answers are in order, an answer that waits
    /// for earlier ones counts as a call.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }
    /// Passes answers on in the order of their arrival, not in the order of the items.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }
    /// Sets the time after which a call without an answer fails.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// Sets how often a failed call is repeated.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
    /// Sets the pause before the first retry; it doubles with each further one. The default is 100 ms.
    #[must_use]
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.retry_pause = pause;
        self
    }
    /// Sets the policy for an item whose call and retries have failed. A call that panics ends the flow in any
    /// case.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
    /// Sets the runtime that makes the calls, which must run until the flow has ended and have its timers enabled. One
    /// without threads of its own (`current_thread`) runs inside its `block_on` only: the flow is awaited there; if it
    /// runs no call for 10 s, the flow fails. By default each worker has its own runtime with one thread.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }
}
