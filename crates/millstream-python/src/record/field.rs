//! A field of a record class: a descriptor that decodes at a fixed offset.
//!
//! The meaning of each format character is that of Python's `struct` module in standard size.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt};

use super::Record;

/// How the bytes of a field are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Signed,
    Unsigned,
    Bool,
    Half,
    Float,
    Double,
    Bytes,
}

/// One field of a record class.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) big_endian: bool,
}

impl Field {
    /// The field's value in the bytes of a record.
    #[inline]
    pub(crate) fn decode<'py>(
        &self,
        py: Python<'py>,
        record: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(bytes) = record.get(self.offset..self.offset + self.size) else {
            let name = &self.name;
            return Err(PyTypeError::new_err(format!(
                "the record is too short for {name}"
            )));
        };
        Ok(match self.kind {
            Kind::Double => PyFloat::new(py, f64::from_bits(self.raw(bytes))).into_any(),
            Kind::Bytes => PyBytes::new(py, bytes).into_any(),
            Kind::Unsigned => integer(self.raw(bytes).into_pyobject(py)),
            Kind::Signed => {
                let unused = 64 - 8 * self.size;
                let value = ((self.raw(bytes) << unused) as i64) >> unused;
                integer(value.into_pyobject(py))
            }
            Kind::Bool => PyBool::new(py, bytes[0] != 0).to_owned().into_any(),
            Kind::Float => {
                PyFloat::new(py, f64::from(f32::from_bits(self.raw(bytes) as u32))).into_any()
            }
            Kind::Half => PyFloat::new(py, half(self.raw(bytes) as u16)).into_any(),
        })
    }

    /// The bytes as a number without a sign.
    #[inline]
    fn raw(&self, bytes: &[u8]) -> u64 {
        let mut wide = [0; 8];
        if self.big_endian {
            wide[8 - bytes.len()..].copy_from_slice(bytes);
            u64::from_be_bytes(wide)
        } else {
            wide[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        }
    }
}

fn integer<'py>(made: Result<Bound<'py, PyInt>, std::convert::Infallible>) -> Bound<'py, PyAny> {
    match made {
        Ok(integer) => integer.into_any(),
    }
}

/// IEEE 754 binary16.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((bits >> 10) & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[pymethods]
impl Field {
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        record: &Bound<'py, PyAny>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(record) = record.cast::<Record>() {
            return slf.get().decode(slf.py(), record.get().as_bytes());
        }
        Ok(slf.clone().into_any())
    }

    fn __set__(&self, _record: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = &self.name;
        Err(PyAttributeError::new_err(format!(
            "{name} cannot be set: a record does not change; pack a new one"
        )))
    }

    fn __repr__(&self) -> String {
        let name = &self.name;
        let from = self.offset;
        let to = self.offset + self.size;
        format!("<field {name}: bytes {from} to {to}>")
    }
}
