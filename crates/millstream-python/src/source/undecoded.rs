//! Input that a source written in Python could not decode: the step after the source that applies its `on_error`.
//!
//! Such a source, which has the attribute `_undecoded`, puts a `millstream._connectors.adapter.undecoded.Undecoded` in
//! the place of the item. The step removes it: no step of the user receives one.

use millstream_flow::step::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError, Pipe};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyType};

use super::reading::Reading;
use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption, Read};

/// Adds the step after the output of a source.
pub(super) fn add(pipe: &Pipe<PyBatch>, reading: &Reading<'_>) -> Pipe<PyBatch> {
    let own = reading.on_error.clone();
    let source = reading.name.to_owned();
    let decoded = pipe.step("decode", &format!("{source}.decode"), move |making| {
        UndecodedStep::make(&own, &source, making)
    });
    reading.on_error.of(decoded)
}

/// The step on one worker.
struct UndecodedStep {
    policy: ErrorHandler,
}

impl UndecodedStep {
    fn make(
        on_error: &OnErrorOption,
        source: &str,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let policy = on_error.open_for(source, making)?;
        Ok(UndecodedStep { policy })
    }

    /// Applies the policy to each marker; the other items, in their order.
    fn work(
        &mut self,
        py: Python<'_>,
        mut input: PyBatch,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let step = self.policy.step.clone();
        let failed = |error| Failure::new(step.clone(), cause(error));
        let marker = marker(py).map_err(failed)?;
        let items = input.take_values(py);
        if !items.iter().any(|item| item.get_type().is(marker)) {
            return Ok(PyBatch::of(items));
        }
        let decoded = PyList::empty(py);
        for item in items {
            if !item.get_type().is(marker) {
                decoded.append(item).map_err(failed)?;
                continue;
            }
            let read = |name| item.getattr(name).map_err(failed);
            let key = read(intern!(py, "key"))?;
            let raw = read(intern!(py, "item"))?;
            let error = PyErr::from_value(read(intern!(py, "error"))?);
            let key = (!key.is_none()).then_some(&key);
            let position: String = read(intern!(py, "position"))?.extract().map_err(failed)?;
            let read = Read {
                item: &raw,
                position: &position,
            };
            self.policy.handle_read(key, read, error, cx, py)?;
        }
        Ok(PyBatch::of(decoded))
    }
}

impl Step<PyBatch, PyBatch> for UndecodedStep {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let input = std::mem::take(input);
        *output = locked(|py| self.work(py, input, cx))?;
        Ok(())
    }
}

/// The class of the markers.
fn marker(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static MARKER: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    MARKER.import(py, "millstream._connectors.adapter.undecoded", "Undecoded")
}
