//! Functions of the user that need a server: an outage, which they report by `RetryLater`, is waited for, and is no
//! fault of the item.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::Failure;
use millstream_flow::clock::now_ns;
use millstream_flow::control::Control;
use millstream_flow::outbox::Backoff;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::error::cause;

/// The longest delay before a function is called again during an outage.
const RETRY_MOST: Duration = Duration::from_secs(5);
/// The interval at which such a delay checks whether the run stops.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Whether a function has raised `RetryLater`.
pub(crate) fn is_outage(py: Python<'_>, error: &PyErr) -> bool {
    static RETRY_LATER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = RETRY_LATER.import(py, "millstream._errors.flow", "RetryLater");
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// The source or sink whose function needs a server.
pub(crate) struct Waiting<'a> {
    /// `source` or `sink`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) control: &'a Arc<Control>,
}

impl Waiting<'_> {
    /// Makes another attempt after each delay until one ends otherwise than by an outage, and returns its result.
    ///
    /// # Errors
    /// The run stops before the server answers.
    #[cold]
    pub(crate) fn retry<'py, T>(
        &self,
        py: Python<'py>,
        mut outage: PyErr,
        mut attempt: impl FnMut() -> PyResult<T>,
    ) -> Result<PyResult<T>, Failure> {
        let kind = self.kind;
        let name = self.name;
        let backoff = Backoff {
            most: RETRY_MOST,
            ..Backoff::default()
        };
        tracing::warn!("{kind} \"{name}\": {outage}; the {kind} waits, and tries again");
        for number in 1.. {
            if !wait(backoff.delay(number), self.control) {
                break;
            }
            match attempt() {
                Err(error) if is_outage(py, &error) => outage = error,
                done => {
                    tracing::info!("{kind} \"{name}\": continues after {number} attempts");
                    return Ok(done);
                }
            }
        }
        Err(Failure::new(name, cause(outage)))
    }
}

/// Waits outside the interpreter; false if the run stops before the end.
fn wait(delay: Duration, control: &Arc<Control>) -> bool {
    let until = now_ns() + delay.as_nanos() as u64;
    while now_ns() < until {
        if control.stopping() {
            return false;
        }
        control.outside(&mut || std::thread::park_timeout(CHECK_INTERVAL));
    }
    true
}
