//! Durable sources: any source of a Python flow, its input recorded before it is processed. Frames of bytes are
//! recorded as they are, objects as one pickled list for each batch.

use std::time::Duration;

use millstream_flow::durable::{Kind, Raw, Retain};
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

/// A source, and how long its input is retained.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct DurableSource {
    pub(crate) source: Py<PyAny>,
    pub(crate) keep: Retain,
}

#[pymethods]
impl DurableSource {
    /// `bytes` and `seconds` say how long input is retained, both absent for no longer than needed.
    #[new]
    fn new(
        source: Py<PyAny>,
        all: bool,
        bytes: Option<u64>,
        seconds: Option<f64>,
    ) -> PyResult<Self> {
        let keep = match (all, bytes, seconds) {
            (true, ..) => Retain::All,
            (_, Some(bytes), _) => Retain::Bytes(bytes),
            (_, _, Some(seconds)) => Retain::Age(Duration::try_from_secs_f64(seconds)?),
            _ => Retain::Needed,
        };
        Ok(DurableSource { source, keep })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<durable {}>", self.source.bind(py).repr()?))
    }
}

/// The options that make the native sources durable.
pub(crate) fn of<'py>(
    source: &Bound<'py, PyAny>,
    keep: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let module = source.py().import("millstream._connectors.durable")?;
    module.call_method1("durable", (source, keep))
}

impl Raw for PyBatch {
    const KIND: Kind = Kind::Pickle;

    fn frames<'a>(&'a self, scratch: &'a mut Frames) -> Result<&'a Frames, Cause> {
        scratch.clear();
        let Some(values) = &self.values else {
            return Ok(scratch);
        };
        let written = |py: Python<'_>| {
            let module = py.import(intern!(py, "millstream._values.saving"))?;
            let bytes = module.call_method1(intern!(py, "dump_items"), (values,))?;
            scratch
                .data
                .extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
            Ok::<_, PyErr>(())
        };
        locked(written).map_err(cause)?;
        let end = u32::try_from(scratch.data.len())
            .map_err(|_| "a batch of input is larger than 4 GiB")?;
        scratch.spans.push((0, end));
        Ok(scratch)
    }

    fn fill(&mut self, frames: &mut Frames) -> Result<(), Cause> {
        let read = |py: Python<'_>| {
            let module = py.import(intern!(py, "millstream._values.saving"))?;
            let bytes = PyBytes::new(py, frames.get(0));
            let items = module.call_method1(intern!(py, "read_items"), (bytes,))?;
            *self = PyBatch::of(items.cast::<PyList>()?.clone());
            Ok::<_, PyErr>(())
        };
        locked(read).map_err(cause)
    }
}
