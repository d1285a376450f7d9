//! A constant of a record class: a field that has the same value in every record, as the type byte
//! that distinguishes kinds of messages. Bytes with another value there are not a record of the class.

use std::fmt::{self, Display};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use super::class_name;
use super::field::{Field, Kind};
use crate::show::show;

/// A field and the only value it may have.
pub(crate) struct Constant {
    field: Field,
    bytes: Vec<u8>,
    pub(crate) value: Py<PyAny>,
}

impl Constant {
    /// `format` is that of the field alone, its byte order in front.
    pub(crate) fn new(field: Field, format: &str, value: Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let wrong = |why: fmt::Arguments<'_>| {
            let name = &field.name;
            let value = show(&value);
            PyValueError::new_err(format!("{name} cannot have the value {value}: {why}"))
        };
        let packed = py
            .import("struct")?
            .call_method1("pack", (format, &value))
            .map_err(|error| wrong(format_args!("{}", error.value(py))))?;
        // The struct module truncates or pads a value of another length.
        if field.kind == Kind::Bytes && value.len()? != field.size {
            return Err(wrong(format_args!("it has {} bytes", field.size)));
        }
        Ok(Constant {
            bytes: packed.cast::<PyBytes>()?.as_bytes().to_owned(),
            value: value.unbind(),
            field,
        })
    }

    /// True for the constant of the field with this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.field.name == name
    }

    /// True when a record, which is long enough, has the value.
    #[inline]
    pub(crate) fn holds(&self, record: &[u8]) -> bool {
        let at = self.field.offset;
        match *self.bytes {
            // Most are one byte; comparing slices is a call.
            [byte] => record[at] == byte,
            _ => record[at..at + self.bytes.len()] == *self.bytes,
        }
    }

    /// The error for a record of `class` that has another value.
    #[cold]
    pub(crate) fn violated(&self, class: &Bound<'_, PyType>, record: &[u8]) -> PyErr {
        let py = class.py();
        let found: &dyn Display = match &self.field.decode(py, record) {
            Ok(found) => &show(found),
            Err(error) => &error.to_string(),
        };
        let class = class_name(class);
        let name = &self.field.name;
        let wanted = show(self.value.bind(py));
        PyValueError::new_err(format!("{class}.{name} is {wanted}, not {found}"))
    }
}
