//! What may be appended, as bytes.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::record::JournalRecord;
use crate::record::Record;
use crate::show::type_name;

/// The bytes of an object: borrowed if they cannot change, a copy otherwise.
pub(crate) enum Body<'a> {
    Still(&'a [u8]),
    Copied(Vec<u8>),
}

impl<'a> Body<'a> {
    #[inline]
    pub(crate) fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Body::Still(bytes.as_bytes())),
            Err(_) => Self::of_other(object),
        }
    }

    fn of_other(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Body::Still(text.to_str()?.as_bytes()));
        }
        if let Ok(record) = object.cast::<JournalRecord>() {
            record.get().check(object.py())?;
            return Ok(Body::Still(record.get().as_bytes()));
        }
        if let Ok(record) = object.cast::<Record>() {
            return Ok(Body::Still(record.get().as_bytes()));
        }
        match PyBuffer::<u8>::get(object) {
            Ok(buffer) => Ok(Body::Copied(buffer.to_vec(object.py())?)),
            Err(_) => Err(PyTypeError::new_err(format!(
                "a record is bytes, str, or a buffer of bytes, not {}",
                type_name(object)
            ))),
        }
    }
}

impl AsRef<[u8]> for Body<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Body::Still(bytes) => bytes,
            Body::Copied(bytes) => bytes,
        }
    }
}
