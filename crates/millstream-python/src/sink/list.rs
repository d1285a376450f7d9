//! A list as a sink: what `millstream.testing.collect` stands on.

use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::error::Cause;
use millstream_flow::sink::Writer;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

/// Appends each batch to a list.
pub(crate) struct ListWriter(pub(crate) Arc<Py<PyList>>);

impl Writer<PyBatch> for ListWriter {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        locked(|py| {
            let list = self.0.bind(py);
            let values = batch.take_values(py);
            batch.clear();
            if values.len() == 1 {
                list.append(values.get_item(0)?)
            } else {
                list.set_slice(list.len(), list.len(), &values)
            }
        })
        .map_err(cause)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}
