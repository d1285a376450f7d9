//! Records into Python objects.

use millstream_wire::{Schema, Type, Unpacker, WireError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, sync::PyOnceLock};

use super::classes::{Named, PyField, PyStruct};

/// Why an object cannot be created: the record is invalid, or the class raised.
pub(super) enum DecodeError {
    Record(Box<WireError>),
    Python(PyErr),
}

impl From<Box<WireError>> for DecodeError {
    fn from(error: Box<WireError>) -> Self {
        Self::Record(error)
    }
}

impl From<PyErr> for DecodeError {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

type Result<T> = std::result::Result<T, DecodeError>;

/// Reads a value of the type.
pub(super) fn decode<'py>(
    py: Python<'py>,
    values: &mut Unpacker<'_>,
    ty: &Type,
    named: &[Named],
    schema: &Schema,
) -> Result<Bound<'py, PyAny>> {
    Ok(match ty {
        Type::Str => PyString::new(py, values.str()?).into_any(),
        Type::F64 => PyFloat::new(py, values.f64()?).into_any(),
        Type::F32 => PyFloat::new(py, values.f32()?.into()).into_any(),
        Type::Bool => values.bool()?.into_bound_py_any(py)?,
        Type::Char => values.char()?.into_bound_py_any(py)?,
        Type::Bytes => PyBytes::new(py, values.bytes()?).into_any(),
        Type::U64 => values.uint()?.into_bound_py_any(py)?,
        Type::Decimal => decimal(py)?.call1((values.str()?,))?,
        Type::Option(_) if values.take_nil()? => py.None().into_bound(py),
        Type::Option(inner) => decode(py, values, inner, named, schema)?,
        Type::List(inner) => {
            let len = values.array()?;
            let list = PyList::empty(py);
            values.deeper(|values| {
                (0..len).try_for_each(|_| {
                    Ok::<_, DecodeError>(list.append(decode(py, values, inner, named, schema)?)?)
                })
            })?;
            list.into_any()
        }
        Type::Map(key, inner) => {
            let len = values.map()?;
            let dict = PyDict::new(py);
            values.deeper(|values| {
                (0..len).try_for_each(|_| {
                    let key = decode(py, values, key, named, schema)?;
                    let value = decode(py, values, inner, named, schema)?;
                    Ok::<_, DecodeError>(dict.set_item(key, value)?)
                })
            })?;
            dict.into_any()
        }
        Type::Named(index) => decode_named(py, values, &named[*index], named, schema)?,
        _ => values.int()?.into_bound_py_any(py)?,
    })
}

fn decimal(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = DECIMAL.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("decimal")?.getattr("Decimal")?.unbind())
    })?;
    Ok(class.bind(py))
}

fn decode_named<'py>(
    py: Python<'py>,
    values: &mut Unpacker<'_>,
    own: &Named,
    named: &[Named],
    schema: &Schema,
) -> Result<Bound<'py, PyAny>> {
    match own {
        Named::Struct(own) => {
            values.array_of(own.fields.len())?;
            values.deeper(|values| make(py, values, own, named, schema))
        }
        Named::Enum(members) => {
            let (number, found) = values.variant()?;
            values.variant_fields(found, 0)?;
            Ok(variant(members, number, values)?.bind(py).clone())
        }
        Named::Union(variants) => {
            let (number, found) = values.variant()?;
            let variant = variant(variants, number, values)?;
            values.variant_fields(found, variant.fields.len())?;
            values.deeper(|values| make(py, values, variant, named, schema))
        }
    }
}

/// The variant of a number that was read.
fn variant<'a, T>(variants: &'a [T], number: u64, values: &Unpacker<'_>) -> Result<&'a T> {
    let variant = usize::try_from(number).ok().and_then(|at| variants.get(at));
    Ok(variant.ok_or_else(|| values.no_variant(number))?)
}

/// An object of a class, from its fields.
fn make<'py>(
    py: Python<'py>,
    values: &mut Unpacker<'_>,
    own: &PyStruct,
    named: &[Named],
    schema: &Schema,
) -> Result<Bound<'py, PyAny>> {
    let given = decode_fields(py, values, &own.fields, named, schema)?;
    if own.positional {
        return Ok(own.class.bind(py).call1(given)?);
    }
    let arguments = PyDict::new(py);
    for (PyField { name, .. }, value) in own.fields.iter().zip(given.iter()) {
        arguments.set_item(name, value)?;
    }
    Ok(own.class.bind(py).call((), Some(&arguments))?)
}

/// Reads the fields of a struct or the arguments of a call.
pub(super) fn decode_fields<'py>(
    py: Python<'py>,
    values: &mut Unpacker<'_>,
    fields: &[PyField],
    named: &[Named],
    schema: &Schema,
) -> Result<Bound<'py, PyTuple>> {
    let mut read = Vec::with_capacity(fields.len());
    for PyField { name, ty } in fields {
        let value = decode(py, values, ty, named, schema);
        read.push(value.map_err(|error| match error {
            DecodeError::Record(error) => DecodeError::Record(error.within(name)),
            other => other,
        })?);
    }
    Ok(PyTuple::new(py, read)?)
}
