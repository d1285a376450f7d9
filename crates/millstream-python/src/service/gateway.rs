//! The gateway of services, as Python sees it.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millstream_http::GatewayServer;
use pyo3::prelude::*;

use super::interface::Interface;
use crate::error::service_cause;
use crate::gil::unlocked;
use crate::journal::sync_of;

/// A gateway at work, until it is stopped.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Gateway {
    #[pyo3(get)]
    address: String,
    /// `None` after it is stopped.
    server: Mutex<Option<GatewayServer>>,
}

#[pymethods]
impl Gateway {
    /// Starts the threads of a gateway. `calls` are journals with the interfaces of their calls, `answers` pairs of
    /// such a journal and an output, `feeds` journals, `states` outputs of
    /// services that are asked; `sync` is none for
    /// never, 0 for always, or seconds; `idempotency_keep` is in seconds.
    #[new]
    #[pyo3(signature = (address, *, calls, answers, feeds, states, token, origins, sync, max_body, idempotency_keep))]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        calls: Vec<(PathBuf, Vec<Py<Interface>>)>,
        answers: Vec<(PathBuf, PathBuf)>,
        feeds: Vec<PathBuf>,
        states: Vec<PathBuf>,
        token: Option<&str>,
        origins: Vec<String>,
        sync: Option<f64>,
        max_body: usize,
        idempotency_keep: f64,
    ) -> PyResult<Self> {
        let gateway = millstream_http::gateway(address).sync(sync_of(sync)?);
        let keep = Duration::try_from_secs_f64(idempotency_keep)?;
        let mut gateway = gateway.max_body(max_body).idempotency_keep(keep);
        for (journal, interfaces) in calls {
            let schemas = interfaces.iter().map(|it| it.get().schema.clone());
            gateway = gateway.calls(journal, schemas);
        }
        for (calls, output) in answers {
            gateway = gateway.answers(calls, output);
        }
        for journal in feeds {
            gateway = gateway.feed(journal);
        }
        for output in states {
            gateway = gateway.state(output);
        }
        if let Some(token) = token {
            gateway = gateway.token(token);
        }
        for origin in origins {
            gateway = gateway.origin(&origin);
        }
        let server = unlocked(|| gateway.start()).map_err(|cause| service_cause(py, cause))?;
        Ok(Gateway {
            address: server.address().to_owned(),
            server: Mutex::new(Some(server)),
        })
    }

    /// Waits for so many seconds at most; raises the error that keeps the gateway from its work.
    fn wait(&self, py: Python<'_>, limit: f64) -> PyResult<()> {
        let limit = Duration::try_from_secs_f64(limit)?;
        let waited = unlocked(|| {
            let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            server.as_ref().map_or(Ok(()), |server| server.wait(limit))
        });
        waited.map_err(|cause| service_cause(py, cause))
    }

    /// Answers the requests that have begun, and ends the threads.
    fn stop(&self) {
        unlocked(|| {
            let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
            drop(server.take());
        });
    }
}
