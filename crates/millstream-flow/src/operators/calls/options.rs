//! How an asynchronous function is called.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::policy::OnError;

/// How an asynchronous function is called.
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
    /// At most 16 calls at once on each worker, answers in the order of the items, no retries and no limit of time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// At most so many calls at once on each worker. In order, an answer that waits for those before it counts.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }
    /// Answers go on as they come, not in the order of the items.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }
    /// A call that has not answered after this time has failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// A call that fails is made again so many times.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
    /// How long to wait before the first retry, 100 ms unless told otherwise; before each further one twice as long.
    #[must_use]
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.retry_pause = pause;
        self
    }
    /// What becomes of an item whose call has failed for good. A call that panics ends the flow in any case.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
    /// The runtime that makes the calls, which must go on until the flow has ended and have its timers enabled. Without, each
    /// worker has one of its own, with one thread.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }
}
