//! Sinks to external systems: `write` and `position` in Python, with the outbox of the engine.
//!
//! All calls of a destination are made by the `Connection` of `millstream/_connectors/destination.py`, on a thread of
//! its own.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::error::chain;
use millstream_flow::framing::Frames;
use millstream_flow::outbox::{
    Backoff, Connector, DeliveryError, Destination, Outbox, OutboxIdentity, Refusals,
};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyCFunction;

use super::bytes::ByteSink;
use super::records::Decode;
use crate::error::{cause, flow_error};
use crate::gil::{locked_while_alive, unlocked};

/// Makes connections in Python.
struct PyConnector {
    address: String,
    connect: Py<PyAny>,
    remembers: bool,
    compares: bool,
    decode: Arc<Decode>,
}

/// A connection in Python.
struct PyDestination {
    connection: Py<PyAny>,
    decode: Arc<Decode>,
}

/// Tells what may succeed later, and records that are refused, from what cannot succeed.
fn delivery_error(py: Python<'_>, error: PyErr) -> DeliveryError {
    static VERDICT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let verdict = VERDICT.import(py, "millstream._errors.delivery", "verdict");
    let verdict = verdict.and_then(|verdict| verdict.call1((error.value(py),))?.extract());
    let verdict: String = verdict.unwrap_or_default();
    match verdict.as_str() {
        "retry" => DeliveryError::Retry(cause(error)),
        "refused" => DeliveryError::Refused(cause(error)),
        _ => DeliveryError::Fatal(cause(error)),
    }
}

/// The function of Python that leaves a record out of a write.
fn leave_out<'py>(py: Python<'py>, refusals: &Refusals) -> PyResult<Bound<'py, PyCFunction>> {
    let refusals = refusals.clone();
    PyCFunction::new_closure(py, None, None, move |arguments, _| {
        let (number, reason): (u64, Bound<'_, PyAny>) = arguments.extract()?;
        let reason = reason.str()?.to_string_lossy().into_owned();
        let left_out = unlocked(|| refusals.leave_out(number, &reason));
        left_out.map_err(|cause| flow_error(arguments.py(), &chain(&*cause).to_string()))
    })
}

/// Makes a call in Python, on the thread of the forwarder.
fn calling<T>(
    call: impl for<'py> FnOnce(Python<'py>) -> Result<T, DeliveryError>,
) -> Result<T, DeliveryError> {
    let called = locked_while_alive(call);
    called.unwrap_or_else(|| Err(DeliveryError::retry("the interpreter ends")))
}

impl Connector for PyConnector {
    fn describe(&self) -> String {
        self.address.clone()
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        calling(|py| {
            let identity = (
                &outbox.flow,
                &outbox.sink,
                outbox.id(),
                outbox.refusals.are_skipped(),
                leave_out(py, &outbox.refusals).map_err(|error| delivery_error(py, error))?,
            );
            let connection = self.connect.call1(py, identity);
            Ok(Box::new(PyDestination {
                connection: connection.map_err(|error| delivery_error(py, error))?,
                decode: Arc::clone(&self.decode),
            }) as Box<dyn Destination>)
        })
    }
    fn remembers(&self) -> bool {
        self.remembers
    }
    fn compares(&self) -> bool {
        self.compares
    }
}

impl Destination for PyDestination {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        calling(|py| {
            let batch = self.decode.batch(py, batch, first);
            let batch = batch.map_err(|cause| match *self.decode {
                // It is that of the sink, and fails for the record alone.
                Decode::By(_) => DeliveryError::Refused(cause),
                Decode::Saved | Decode::Bytes => DeliveryError::Fatal(cause),
            })?;
            let name = intern!(py, "write");
            let written = self.connection.call_method1(py, name, (batch, first, last));
            written.map(drop).map_err(|error| delivery_error(py, error))
        })
    }
    fn skip(&mut self, number: u64) -> Result<(), DeliveryError> {
        calling(|py| {
            let skipped = self
                .connection
                .call_method1(py, intern!(py, "skip"), (number,));
            skipped.map(drop).map_err(|error| delivery_error(py, error))
        })
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        calling(|py| {
            let position = self.connection.call_method0(py, intern!(py, "position"));
            let position = position.map_err(|error| delivery_error(py, error))?;
            let position = position.bind(py);
            position.extract().map_err(|_| {
                DeliveryError::Fatal(cause(PyTypeError::new_err(format!(
                    "position returns the number of a record, from 0, or None, not {}",
                    crate::show::show(position)
                ))))
            })
        })
    }
}

impl Drop for PyDestination {
    fn drop(&mut self) {
        // The connection has logged what went wrong.
        let _ = locked_while_alive(|py| {
            self.connection
                .call_method0(py, intern!(py, "close"))
                .map(drop)
        });
    }
}

/// The delays between attempts in seconds, their factor, and the number of attempts.
pub(super) type Retry = (f64, f64, f64, Option<u64>);

/// Sets the limits of an outbox; times in seconds.
pub(super) fn limited(
    outbox: Outbox,
    retry: Retry,
    max_bytes: u64,
    max_age: Option<f64>,
    batch: usize,
    wait_at_end: f64,
) -> PyResult<Outbox> {
    let backoff = Backoff {
        first: Duration::try_from_secs_f64(retry.0)?,
        most: Duration::try_from_secs_f64(retry.1)?,
        factor: retry.2,
        tries: retry.3,
    };
    let outbox = outbox.max_bytes(max_bytes).batch(batch).backoff(backoff);
    let outbox = outbox.wait_at_end(Duration::try_from_secs_f64(wait_at_end)?);
    Ok(match max_age {
        Some(age) => outbox.max_age(Duration::try_from_secs_f64(age)?),
        None => outbox,
    })
}

/// A sink with an outbox. `connect` receives the names of flow and sink and the identity of the outbox. Without
/// `encode` and `decode` records are items as they are saved; with `encode` alone `write` receives the bytes.
#[pyfunction]
#[pyo3(signature = (address, connect, *, remembers, encode, decode, retry, max_bytes, max_age, batch, batch_bytes, batch_age, compares, wait_at_end))]
#[expect(clippy::too_many_arguments, reason = "the options of a sink")]
pub(crate) fn outbox_sink(
    address: String,
    connect: Py<PyAny>,
    remembers: bool,
    encode: Option<Py<PyAny>>,
    decode: Option<Py<PyAny>>,
    retry: Retry,
    max_bytes: u64,
    max_age: Option<f64>,
    batch: usize,
    batch_bytes: usize,
    batch_age: Option<f64>,
    compares: bool,
    wait_at_end: f64,
) -> PyResult<ByteSink> {
    let saved = encode.is_none();
    let decode = match decode {
        Some(decode) => Decode::By(decode),
        None if saved => Decode::Saved,
        None => Decode::Bytes,
    };
    let decode = Arc::new(decode);
    let outbox = Outbox::new(PyConnector {
        address,
        connect,
        remembers,
        compares,
        decode: Arc::clone(&decode),
    });
    let outbox = limited(outbox, retry, max_bytes, max_age, batch, wait_at_end)?;
    let outbox = outbox.batch_bytes(batch_bytes);
    let outbox = match batch_age {
        Some(age) => outbox.batch_age(Duration::try_from_secs_f64(age)?),
        None => outbox,
    };
    Ok(ByteSink::of_outbox(outbox, encode, decode))
}
