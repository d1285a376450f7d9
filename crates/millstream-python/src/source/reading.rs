//! How a flow reads a source: its name, the size of batches, how input that cannot be decoded is handled.

use millstream_flow::Compression;
use millstream_flow::framing::Framing;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};

use crate::error::usage;
use crate::policy::OnErrorOption;
use crate::show::show;

/// Reads the name of a framing.
pub(crate) fn framing(py: Python<'_>, name: &str) -> PyResult<Framing> {
    name.parse::<Framing>()
        .map_err(|error| usage(py, &error.to_string()))
}

/// Reads the name of a compression.
pub(crate) fn compression(py: Python<'_>, name: Option<&str>) -> PyResult<Compression> {
    match name {
        Some("auto") => Ok(Compression::ByName),
        None => Ok(Compression::Uncompressed),
        Some("gzip") => Ok(Compression::Gzip),
        Some("zstd") => Ok(Compression::Zstd),
        Some(other) => Err(usage(
            py,
            &format!("compression is \"auto\", \"gzip\", \"zstd\" or None, not {other:?}"),
        )),
    }
}

/// How a flow reads a source.
pub(crate) struct Reading<'a> {
    /// The name of the source in the flow.
    pub(crate) name: &'a str,
    /// How many items a batch has at most; the source may allow fewer.
    pub(crate) batch_size: usize,
    /// The handling of input that cannot be decoded.
    pub(crate) on_error: OnErrorOption,
}

/// Reads the batch size of source `name` from Python: a number from 1, or None for no limit.
pub(crate) fn batch_size(name: &str, size: &Bound<'_, PyAny>) -> PyResult<usize> {
    if size.is_none() {
        return Ok(usize::MAX);
    }
    let is_number = size.is_instance_of::<PyInt>() && !size.is_instance_of::<PyBool>();
    if is_number && size.ge(1)? {
        // A number that is too large for the engine limits nothing.
        Ok(size.extract().unwrap_or(usize::MAX))
    } else {
        Err(usage(
            size.py(),
            &format!(
                "source \"{name}\": batch_size is a number of items from 1, not {}",
                show(size)
            ),
        ))
    }
}
