//! The interpreter lock: all code that acquires or releases it.
//!
//! A worker thread is attached to the interpreter for its whole life, so that its thread state is
//! made once, and releases the lock at once. Each turn of an operator takes the lock and keeps it for
//! all steps fused into that operator. Inside a turn the lock is released only around native work that
//! may wait: reading a socket or a file, writing to one. A worker that sleeps holds nothing.
//!
//! In a free-threaded interpreter there is no lock: a thread is attached where it would hold it, and turns of several
//! workers run at once. What is safe there is what belongs to one worker: its batches, kernels, logic and states. What
//! several use is behind a lock of its own. An attached thread waits for such a lock only if its holder never calls the
//! interpreter, which would wait for all attached threads to pause; else it detaches to wait (`unlocked`,
//! `lock_py_attached`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::Running;
use millstream_flow::clock::now_ns;
use millstream_flow::control::Wrapper;
use pyo3::prelude::*;
use send_wrapper::SendWrapper;

/// Whether waits for the lock are measured, for a profile.
static MEASURED: AtomicBool = AtomicBool::new(false);
/// The time of these waits of all threads in nanoseconds, and their number.
static WAITED: (AtomicU64, AtomicU64) = (AtomicU64::new(0), AtomicU64::new(0));

/// Begins or ends to measure the waits for the lock; returns their seconds and their number so far.
#[pyfunction]
pub(crate) fn measure_lock_waits(measured: bool) -> (f64, u64) {
    MEASURED.store(measured, Ordering::Relaxed);
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    (read(&WAITED.0) as f64 / 1e9, read(&WAITED.1))
}

/// The time at which a wait begins, if it is measured.
fn wait_begins() -> Option<u64> {
    MEASURED.load(Ordering::Relaxed).then(now_ns)
}

fn wait_ends(began_ns: Option<u64>) {
    if let Some(began_ns) = began_ns {
        WAITED
            .0
            .fetch_add(now_ns().saturating_sub(began_ns), Ordering::Relaxed);
        WAITED.1.fetch_add(1, Ordering::Relaxed);
    }
}

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
    let (result, began_ns) = Python::attach(|py| {
        py.detach(move || {
            let result = (work.take())();
            SendWrapper::new((result, wait_begins()))
        })
    })
    .take();
    wait_ends(began_ns);
    result
}

/// What is wrapped around the life of each worker thread.
pub(crate) fn around_worker() -> Wrapper {
    Arc::new(|life| {
        // A worker that is not noted has no stack on the page and a collector that runs often, and works.
        let note = |what: &str| {
            locked_while_alive(|py| {
                py.import("millstream._run.workers")?
                    .call_method0(what)
                    .map(drop)
            })
        };
        let _ = note("begin");
        unlocked(life);
        let _ = note("end");
    })
}

/// What is wrapped around each turn of an operator.
pub(crate) fn around_turn() -> Wrapper {
    Arc::new(|turn| {
        let began_ns = wait_begins();
        locked(|_| {
            wait_ends(began_ns);
            turn();
        });
    })
}

/// Waits until the flow has ended, `limit` at most; true when it has.
pub(crate) fn ended_within(running: &Running, limit: Duration) -> bool {
    unlocked(|| running.ended_within(limit))
}

/// Wraps each wait of a step for external systems.
pub(crate) fn around_wait() -> Wrapper {
    Arc::new(|wait| unlocked(wait))
}
