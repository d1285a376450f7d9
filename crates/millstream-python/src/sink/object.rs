//! A sink written in Python: an object with `open(worker)`, which returns an object with
//! `write_batch(list)`, `flush()` and `close()`.

use std::sync::Arc;

use millstream_flow::Failure;
use millstream_flow::batch::Batch;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Token, Writer};
use pyo3::call::PyCallArgs;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

struct ObjectWriter {
    writer: Py<PyAny>,
    name: String,
}

/// Opens a Python sink for one worker.
pub(crate) fn open(
    sink: &Arc<Py<PyAny>>,
    name: &str,
    worker: usize,
) -> Result<Box<dyn Writer<PyBatch>>, Cause> {
    let writer = locked(|py| {
        sink.bind(py)
            .call_method1("open", (worker,))
            .map(Bound::unbind)
    });
    Ok(Box::new(ObjectWriter {
        writer: writer.map_err(cause)?,
        name: name.to_owned(),
    }))
}

/// The result of an optional method of a sink or writer; `None` when it has no such method.
fn call_if_there<'py>(
    object: &Bound<'py, PyAny>,
    verb: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match object.getattr_opt(verb)? {
        Some(verb) => Ok(Some(verb.call1(arguments)?).filter(|given| !given.is_none())),
        None => Ok(None),
    }
}

/// A token as it is saved: the result of the sink, pickled.
fn written(token: &Bound<'_, PyAny>) -> PyResult<Token> {
    let pickle = token.py().import(intern!(token.py(), "pickle"))?;
    pickle.call_method1("dumps", (token, 5))?.extract()
}

fn read<'py>(py: Python<'py>, tokens: &[Token]) -> PyResult<Bound<'py, PyList>> {
    let pickle = py.import(intern!(py, "pickle"))?;
    let read = |token: &Token| pickle.call_method1("loads", (PyBytes::new(py, token),));
    PyList::new(py, tokens.iter().map(read).collect::<PyResult<Vec<_>>>()?)
}

/// Rolls a sink back to the last committed epoch.
pub(crate) fn resume(sink: &Arc<Py<PyAny>>, tokens: &[Token]) -> Result<Option<Token>, Cause> {
    let resumed = |py: Python<'_>| {
        let token = call_if_there(sink.bind(py), "resume", (read(py, tokens)?,))?;
        token.map(|token| written(&token)).transpose()
    };
    locked(resumed).map_err(cause)
}

/// Notifies a sink that an epoch is committed.
pub(crate) fn commit(sink: &Arc<Py<PyAny>>, epoch: u64, tokens: &[Token]) -> Result<(), Cause> {
    let committed = |py: Python<'_>| {
        call_if_there(sink.bind(py), "commit", (epoch, read(py, tokens)?)).map(drop)
    };
    locked(committed).map_err(cause)
}

impl Writer<PyBatch> for ObjectWriter {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        locked(|py| {
            let values = batch.take_values(py);
            batch.clear();
            let items = values.len();
            let name = intern!(py, "write_batch");
            match self.writer.bind(py).call_method1(name, (values,)) {
                Ok(_) => Ok(()),
                Err(error) => Err(Failure {
                    step: self.name.clone(),
                    key: None,
                    item: Some(format!("a batch of {items}")),
                    cause: cause(error),
                }
                .into()),
            }
        })
    }
    fn flush(&mut self) -> Result<(), Cause> {
        locked(|py| {
            self.writer
                .bind(py)
                .call_method0(intern!(py, "flush"))
                .map(drop)
        })
        .map_err(cause)
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.flush()?;
        let prepared = |py: Python<'_>| {
            let token = call_if_there(self.writer.bind(py), "prepare", (epoch,))?;
            token.map(|token| written(&token)).transpose()
        };
        locked(prepared).map_err(cause)
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        locked(|py| {
            self.writer
                .bind(py)
                .call_method0(intern!(py, "close"))
                .map(drop)
        })
        .map_err(cause)?;
        Ok(None)
    }
}
