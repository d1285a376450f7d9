//! Requests in memory, in a run without a state directory. A request is acknowledged when the flow takes it.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot;

use crate::lock;

/// The record of a request, and the sender that acknowledges it.
pub(super) type Waiting = (Vec<u8>, oneshot::Sender<()>);

/// Requests that wait for the flow.
#[derive(Default)]
pub(super) struct WaitingRequests(Mutex<VecDeque<Waiting>>);

impl WaitingRequests {
    /// Adds a request; the receiver learns when the flow has taken it, or that it will not.
    pub(super) fn push(&self, record: Vec<u8>) -> oneshot::Receiver<()> {
        let (taken, receiver) = oneshot::channel();
        lock(&self.0).push_back((record, taken));
        receiver
    }

    pub(super) fn pop(&self) -> Option<Waiting> {
        lock(&self.0).pop_front()
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}
