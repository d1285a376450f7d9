//! Copies of objects that would have two owners; see `millstream/_values/ownership.py`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

/// An output: a shallow copy, if the object can change.
pub(crate) fn copied<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static COPIED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(value, &COPIED, "copied")
}

/// An accumulator of its own: a deep copy, if the object can change.
pub(crate) fn separate<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static SEPARATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    call(value, &SEPARATE, "separate")
}

fn call<'py>(
    value: &Bound<'py, PyAny>,
    function: &PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    if is_plain(value) {
        return Ok(value.clone());
    }
    let function = function.import(value.py(), "millstream._values.ownership", name)?;
    function.call1((value,))
}

/// True for the immutable objects that are the most frequent.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<PyBool>()
}
