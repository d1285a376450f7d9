//! A sink written in Python that stays inside the process, such as standard output: an object with `open(worker)`, which returns
//! an object with `write_batch(list)`, `flush()` and `close()`. It takes no part in commits.

use std::sync::Arc;

use millstream_flow::Failure;
use millstream_flow::batch::Batch;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Token, Writer};
use pyo3::intern;
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::error::{cause, usage};
use crate::gil::locked;
use crate::show::type_name;

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
        check_phases(&writer, &["prepare"])?;
        Ok(writer.unbind())
    });
    Ok(Box::new(ObjectWriter {
        writer: writer.map_err(cause)?,
        name: name.to_owned(),
    }))
}

/// Refuses an object with methods of the two-phase sinks of earlier versions, whose output would no longer be committed.
pub(crate) fn check_phases(object: &Bound<'_, PyAny>, verbs: &[&str]) -> PyResult<()> {
    for verb in verbs {
        if object.getattr(*verb).is_ok_and(|verb| verb.is_callable()) {
            let name = type_name(object);
            return Err(usage(
                object.py(),
                &format!(
                    "{name} has a method {verb}, and sinks take no part in commits: a sink to an external system is made with ms.sink, \
                     of a class with write and position"
                ),
            ));
        }
    }
    Ok(())
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
