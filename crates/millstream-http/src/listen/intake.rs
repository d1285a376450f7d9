//! What the server and the flow share: the requests that the flow has not read, and their limits.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hyper::StatusCode;
use millstream_flow::error::{Cause, chain};
use millstream_flow::poller::Wake;

use super::body::Items;
use super::recorded::RecordedRequests;
use super::waiting::WaitingRequests;
use crate::budget::Budget;
use crate::lock;
use crate::refusal::Refusal;

/// The answer while too many bytes are pending.
const BUSY: &str = "the flow does not keep up; try again later";

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
    pub(super) budget: Budget,
    /// The number of requests after which the source ends.
    requests_max: Option<u64>,
    /// The number of requests that were accepted, those of earlier runs among them. Only the server's thread accepts.
    accepted: AtomicU64,
    closed: AtomicBool,
    /// An error that ends the flow.
    failure: Mutex<Option<Cause>>,
    /// The number of requests without a right signature that the flow has not counted, and why the last one was
    /// refused.
    unsigned: Mutex<(u64, String)>,
    /// What the ids of this run have in common, and the number of the last one.
    ids: (u64, AtomicU64),
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
            budget: Budget::new(pending, pending_bytes_max, BUSY),
            requests_max,
            accepted: accepted.into(),
            closed: AtomicBool::new(false),
            failure: Mutex::default(),
            unsigned: Mutex::default(),
            ids: (RandomState::new().build_hasher().finish(), 0.into()),
        }))
    }

    /// Accepts the items of a request; returns when it may be acknowledged.
    pub(super) async fn accept(&self, items: Items) -> Result<(), Refusal> {
        if items.count == 0 {
            return Ok(());
        }
        self.check_open()?;
        self.budget.add(items.record.len() as u64);
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

    /// Refuses requests after the end of the source.
    pub(super) fn check_open(&self) -> Result<(), Refusal> {
        if self.closed.load(Ordering::SeqCst) || self.has_all() {
            Err(ended())
        } else {
            Ok(())
        }
    }

    /// An id that no other request of this source has.
    pub(super) fn next_id(&self) -> String {
        let number = self.ids.1.fetch_add(1, Ordering::SeqCst) + 1;
        format!("{:016x}-{number}", self.ids.0)
    }

    /// Counts a request that was refused because of its signature.
    pub(super) fn count_unsigned(&self, why: &str) {
        let mut unsigned = lock(&self.unsigned);
        unsigned.0 += 1;
        why.clone_into(&mut unsigned.1);
        drop(unsigned);
        self.wake.wake();
    }

    /// Takes the number of such requests since the last call, if there were any, and why the last one was refused.
    pub(super) fn take_unsigned(&self) -> Option<(u64, String)> {
        let mut unsigned = lock(&self.unsigned);
        (unsigned.0 > 0).then(|| std::mem::take(&mut *unsigned))
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
        let line = format!("the request cannot be recorded: {}", chain(&*cause));
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
