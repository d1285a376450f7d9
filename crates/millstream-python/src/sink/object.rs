//! A sink written in Python that stays inside the process, such as standard output: an object with `open(worker)`,
//! which returns an object with `write_batch(list)`, `flush()` and `close()`. It takes no part in commits.

use std::sync::Arc;

use millstream_flow::Failure;
use millstream_flow::batch::Batch;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Token, Writer};
use pyo3::intern;
use pyo3::prelude::*;

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
        let writer = sink.bind(py).call_method1("open", (worker,))?;
        Ok(writer.unbind())
    });
    Ok(Box::new(ObjectWriter {
        writer: writer.map_err(cause)?,
        name: name.to_owned(),
    }))
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
