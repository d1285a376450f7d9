//! What the server and the flow share: the requests that the flow has not read, and their limits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::StatusCode;
use millstream_flow::error::Cause;
use millstream_flow::poller::Wake;

use super::body::Items;
use super::recorded::RecordedRequests;
use super::waiting::WaitingRequests;
use crate::lock;
use crate::refusal::Refusal;

/// Where requests are until the flow reads them.
pub(super) enum Store {
    /// In a journal of the state directory.
    Recorded(Arc<RecordedRequests>),
    /// In memory, in a run without a state directory.
    Waiting(WaitingRequests),
}

/// The requests between the server and the flow.
pub(super) struct Intake {
    pub(super) store: Store,
    wake: Wake,
    /// The bytes of requests that the flow has not read, those that are being received among them.
    pending_bytes: AtomicU64,
    pending_bytes_max: u64,
    /// The number of requests after which the source ends.
    requests_max: Option<u64>,
    /// The number of requests that were accepted, those of earlier runs among them. Only the server's thread accepts.
    accepted: AtomicU64,
    closed: AtomicBool,
    /// An error that ends the flow.
    failure: Mutex<Option<Cause>>,
}

/// Bytes of a request that is being received. They count as pending until it is dropped.
pub(super) struct Reserved<'a> {
    intake: &'a Intake,
    bytes: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.intake.release(self.bytes);
    }
}

impl Reserved<'_> {
    /// Reserves `bytes` more; refused while too many are pending. A request by itself is always received.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let others = self.intake.pending_bytes.load(Ordering::Relaxed) - self.bytes;
        if others > 0 && others + self.bytes + bytes > self.intake.pending_bytes_max {
            let line = "the flow does not keep up; try again later";
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, line));
        }
        self.bytes += bytes;
        self.intake
            .pending_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Intake {
    /// The intake of a run whose first request is number `first`.
    pub(super) fn new(
        store: Store,
        first: u64,
        pending_bytes_max: u64,
        requests_max: Option<u64>,
        wake: Wake,
    ) -> Result<Arc<Self>, Cause> {
        let (pending, accepted) = match &store {
            Store::Recorded(recorded) => (recorded.bytes_from(first)?, recorded.next()?),
            Store::Waiting(_) => (0, 0),
        };
        Ok(Arc::new(Intake {
            store,
            wake,
            pending_bytes: pending.into(),
            pending_bytes_max,
            requests_max,
            accepted: accepted.into(),
            closed: AtomicBool::new(false),
            failure: Mutex::default(),
        }))
    }

    /// Begins to receive a request.
    pub(super) fn reserve(&self) -> Reserved<'_> {
        Reserved {
            intake: self,
            bytes: 0,
        }
    }

    /// Counts bytes as read by the flow, or as not received.
    pub(super) fn release(&self, bytes: u64) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Accepts the items of a request; returns when it may be acknowledged.
    pub(super) async fn accept(&self, items: Items) -> Result<(), Refusal> {
        if items.count == 0 {
            return Ok(());
        }
        if self.closed.load(Ordering::SeqCst) || self.has_all() {
            return Err(ended());
        }
        let bytes = items.record.len() as u64;
        self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        match &self.store {
            Store::Waiting(waiting) => {
                let taken = waiting.push(items.record);
                self.count_accepted();
                taken.await.map_err(|_| ended())
            }
            Store::Recorded(recorded) => {
                let appended = recorded.append(&items.record);
                let sequence = appended.map_err(|cause| self.fail(cause))?;
                self.count_accepted();
                let durable = recorded.wait_durable(sequence).await;
                durable.map_err(|cause| self.fail(cause))
            }
        }
    }

    /// Counts a request that the flow can read, and wakes the flow.
    fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        self.wake.wake();
    }

    /// True if the last request was accepted.
    pub(super) fn has_all(&self) -> bool {
        let accepted = self.accepted.load(Ordering::SeqCst);
        self.requests_max.is_some_and(|most| accepted >= most)
    }

    /// Fails the flow.
    pub(super) fn fail(&self, cause: Cause) -> Refusal {
        let line = format!("the request cannot be recorded: {cause}");
        lock(&self.failure).get_or_insert(cause);
        self.close();
        self.wake.wake();
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, line)
    }

    pub(super) fn take_failure(&self) -> Option<Cause> {
        lock(&self.failure).take()
    }

    /// Accepts no more requests; those that wait in memory are refused.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Store::Waiting(waiting) = &self.store {
            waiting.clear();
        }
    }
}

fn ended() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the flow ends; try again later",
    )
}
