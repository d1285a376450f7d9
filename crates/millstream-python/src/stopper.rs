//! What stops a running flow or service from another thread, or from the handler of a signal.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::control::Control;
use pyo3::prelude::*;

/// Stops a running flow or service, and calls `on_start` when it runs.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Default)]
pub(crate) struct Stopper {
    /// Read after each call of a service, so it is no part of what the lock protects.
    stopped: AtomicBool,
    control: Mutex<Option<Arc<Control>>>,
    on_start: Option<Py<PyAny>>,
}

impl Stopper {
    /// Whether a stop was requested.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Whether a signal has asked this process to stop; Python's handlers of signals run meanwhile.
    pub(crate) fn was_asked(&self, py: Python<'_>) -> bool {
        // A handler that raises has noted the request: the second signal ends the wait as the first does.
        py.check_signals().is_err() || self.is_stopped()
    }

    /// Calls `on_start`: the flow runs.
    pub(crate) fn note_start(&self, py: Python<'_>) -> PyResult<()> {
        let call = self.on_start.as_ref().map(|call| call.call0(py));
        call.transpose().map(drop)
    }

    /// Stops this run when it is asked to, from now on.
    pub(crate) fn watch(&self, control: Arc<Control>) {
        let mut held = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() {
            control.stop();
        }
        *held = Some(control);
    }
}

#[pymethods]
impl Stopper {
    #[new]
    #[pyo3(signature = (on_start = None))]
    fn new(on_start: Option<Py<PyAny>>) -> Self {
        Stopper {
            on_start,
            ..Stopper::default()
        }
    }

    /// Whether a stop was requested.
    #[getter]
    fn stopped(&self) -> bool {
        self.is_stopped()
    }

    /// Whether no thread of the flow is left; true where there was none.
    #[getter]
    fn ended(&self) -> bool {
        let held = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let control = held.as_ref();
        control.is_none_or(|control| control.ended_within(Duration::ZERO))
    }

    /// Requests a drain and an end.
    fn stop(&self) {
        let held = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped.store(true, SeqCst);
        if let Some(control) = &*held {
            control.stop();
        }
    }
}
