//! A limit for the bytes of requests that are received or wait.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;

use crate::refusal::Refusal;

/// The bytes that are pending, and their limit.
pub(crate) struct Budget {
    pending: AtomicU64,
    max: u64,
    /// The answer to a request that would exceed it.
    line: &'static str,
}

/// Bytes of a request that is being received. They count as pending until it is dropped.
pub(crate) struct Reserved<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(pending: u64, max: u64, line: &'static str) -> Self {
        Budget {
            pending: pending.into(),
            max,
            line,
        }
    }

    /// Begins to receive a request.
    pub(crate) fn reserve(&self) -> Reserved<'_> {
        Reserved {
            budget: self,
            bytes: 0,
        }
    }

    /// Counts bytes as pending, beyond the limit, too.
    pub(crate) fn add(&self, bytes: u64) {
        self.pending.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.pending.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

impl Reserved<'_> {
    /// Reserves `bytes` more; refused while too many are pending. A request by itself is always received.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let others = self.budget.pending.load(Ordering::Relaxed) - self.bytes;
        if others > 0 && others + self.bytes + bytes > self.budget.max {
            return Err(Refusal::new(
                StatusCode::TOO_MANY_REQUESTS,
                self.budget.line,
            ));
        }
        self.bytes += bytes;
        self.budget.add(bytes);
        Ok(())
    }
}
