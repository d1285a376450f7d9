//! Items and keys as text for an error: short, and whatever their `__repr__` does.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `repr(object)`, truncated to a line; an object whose `repr` fails is named by its type.
pub(crate) fn show(object: &Bound<'_, PyAny>) -> String {
    let py = object.py();
    static SHOW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let shown = SHOW
        .import(py, "millstream._errors.flow", "show")
        .and_then(|show| show.call1((object,))?.extract::<String>());
    shown.unwrap_or_else(|_| format!("<{} object>", type_name(object)))
}

/// The name of an object's type.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name();
    name.map_or_else(
        |_| "object".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}
