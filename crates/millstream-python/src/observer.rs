//! The server of the page of a flow.

use std::io::ErrorKind;
use std::path::PathBuf;

use millstream_flow::error::chain;
use millstream_observe::sections::services::{ServiceOf, Services, SystemStatus};
use millstream_observe::{Down, ObserveError, Observer as Engine, Restart, http};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::error::{to_python, usage};
use crate::service::Meter;
use crate::stacks::stacks;
use crate::{gil, logs};

/// A server that is bound, and shows the flow that runs with it.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Observer {
    pub(crate) engine: Engine,
}

#[pymethods]
impl Observer {
    /// `framed` lets other pages show this one in a frame.
    #[new]
    #[pyo3(signature = (address, token, open, framed = false))]
    fn new(
        py: Python<'_>,
        address: &str,
        token: Option<&str>,
        open: bool,
        framed: bool,
    ) -> PyResult<Self> {
        logs::refresh(py)?;
        let mut http = http(address).open(open).framed(framed).stacks(stacks());
        if let Some(token) = token {
            http = http.token(token);
        }
        let bound = logs::flushed(|| http.bind());
        match bound {
            Ok(engine) => Ok(Observer { engine }),
            Err(ObserveError::Flow(error)) => Err(to_python(py, error)),
            Err(error) => {
                if is_io(&error) {
                    Err(PyOSError::new_err(chain(&error).to_string()))
                } else {
                    Err(usage(py, &chain(&error).to_string()))
                }
            }
        }
    }

    /// The address, with the port that the system has chosen if it was 0.
    #[getter]
    fn address(&self) -> &str {
        self.engine.address()
    }

    /// Shows how often a supervisor has started the flow again: the last times, in milliseconds since 1970, and causes,
    /// the newest first.
    fn show_restarts(&self, count: u64, restarts: Vec<(u64, String)>) {
        let restart = |(time_ms, cause)| Restart { time_ms, cause };
        self.engine
            .show_restarts(count, restarts.into_iter().map(restart).collect());
    }

    /// Shows more of what the process is, as names and values.
    fn show_about(&self, facts: Vec<(String, String)>) {
        self.engine.show_about(facts);
    }

    /// Writes each snapshot to a file from now on, for the page of a supervisor.
    fn keep_in(&self, path: PathBuf) {
        self.engine.keep_in(&path);
    }

    /// Shows a flow that has failed since `since_ms`, milliseconds since 1970, with its last figures, which may be those
    /// in the file `kept`, and with the processes that are `missing`.
    #[expect(
        clippy::too_many_arguments,
        reason = "called from two places in the package"
    )]
    #[pyo3(signature = (flow, error, traceback, since_ms, restarted, missing, kept = None))]
    fn show_down(
        &self,
        flow: &str,
        error: String,
        traceback: Option<String>,
        since_ms: u64,
        restarted: bool,
        missing: Vec<usize>,
        kept: Option<PathBuf>,
    ) {
        let down = Down {
            error,
            traceback,
            since_ms,
            is_restarted: Some(restarted),
        };
        self.engine.show_down(flow, down, missing, kept.as_deref());
    }

    /// Shows a service: its name and progress, its inputs, its output and the journal of its dead letters.
    #[pyo3(signature = (name, meter, inputs, output, dead_letters))]
    fn show_service(
        &self,
        py: Python<'_>,
        name: String,
        meter: Py<Meter>,
        inputs: Vec<PathBuf>,
        output: Option<PathBuf>,
        dead_letters: Option<PathBuf>,
    ) -> PyResult<()> {
        let service = ServiceOf {
            name,
            // Reading it needs no interpreter.
            progress: Box::new(move || meter.get().0.read()),
            inputs,
            output,
            dead_letters,
        };
        let services = Services::watch_with(service, Some(stacks()))
            .map_err(|error| usage(py, &chain(&error).to_string()))?;
        self.engine.show(services);
        Ok(())
    }

    /// Shows the services of a system, by the files in its state directory.
    fn show_system(&self, py: Python<'_>, state: PathBuf) -> PyResult<()> {
        let services = Services::watch_system(&state);
        let services = services.map_err(|error| usage(py, &chain(&error).to_string()))?;
        self.engine.show(services);
        Ok(())
    }

    /// Stops the server.
    fn stop(&self) {
        // The thread that is waited for may write to the log of Python.
        gil::unlocked(|| self.engine.stop());
    }
}

/// Writes `status.json` of a system of services into its state directory; `status` is its contents.
#[pyfunction]
pub(crate) fn write_system_status(state: PathBuf, status: &str) -> PyResult<()> {
    let status: SystemStatus =
        serde_json::from_str(status).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(status.write(&state)?)
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn is_io(error: &ObserveError) -> bool {
    let kind = match error {
        ObserveError::Bind(cause) => cause.downcast_ref().map(std::io::Error::kind),
        _ => None,
    };
    kind.is_some_and(|kind| kind != ErrorKind::InvalidInput)
}
