//! The interpreter lock: all code that acquires or releases it.
//!
//! A worker thread is attached to the interpreter for its whole life, so that its thread state is
//! made once, and releases the lock at once. Each turn of an operator takes the lock and keeps it for
//! all steps fused into that operator. Inside a turn the lock is released only around native work that
//! may wait: reading a socket or a file, writing to one. A worker that sleeps holds nothing.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::Running;
use millstream_flow::run::Wrapper;
use pyo3::prelude::*;
use send_wrapper::SendWrapper;

/// Runs `work` with the lock. Cheap where the thread holds it already.
pub(crate) fn locked<R>(work: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    Python::attach(work)
}

/// Runs `work` with the lock; returns nothing once the interpreter ends. For threads that a run may leave at work.
pub(crate) fn locked_while_alive<R>(work: impl for<'py> FnOnce(Python<'py>) -> R) -> Option<R> {
    Python::try_attach(work)
}

/// Runs native `work` without the lock, whether or not the thread holds it.
pub(crate) fn unlocked<R>(work: impl FnOnce() -> R) -> R {
    // Neither the closure nor its result leaves this thread: the wrappers assert that to the type checker.
    let work = SendWrapper::new(work);
    Python::attach(|py| py.detach(move || SendWrapper::new((work.take())()))).take()
}

/// What is wrapped around the life of each worker thread.
pub(crate) fn around_worker() -> Wrapper {
    Arc::new(|life| unlocked(life))
}

/// What is wrapped around each turn of an operator.
pub(crate) fn around_turn() -> Wrapper {
    Arc::new(|turn| locked(|_| turn()))
}

/// Waits until the flow has ended, `limit` at most; true when it has.
pub(crate) fn ended_within(running: &Running, limit: Duration) -> bool {
    unlocked(|| running.ended_within(limit))
}

/// Wraps each wait of a step for external systems.
pub(crate) fn around_wait() -> Wrapper {
    Arc::new(|wait| unlocked(wait))
}
