//! Python objects into records.

use millstream_wire::{Misfit, Packer, Schema, Type, WireError};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

use super::classes::{Named, PyField, PyStruct};
use crate::show::type_name;

/// Why a value cannot be written: a fault of the value, or no space, which is tried again with more.
pub(super) enum EncodeError {
    Full,
    Value(PyErr),
}

impl From<PyErr> for EncodeError {
    fn from(error: PyErr) -> Self {
        Self::Value(error)
    }
}

impl From<Box<WireError>> for EncodeError {
    fn from(error: Box<WireError>) -> Self {
        match *error {
            WireError::Full { .. } => Self::Full,
            other => Self::Value(PyValueError::new_err(other.to_string())),
        }
    }
}

impl EncodeError {
    /// The exception, with the name of the argument before its text.
    pub fn into_python(self, py: Python<'_>, name: &str) -> PyErr {
        match self {
            Self::Full => PyValueError::new_err(format!("{name}: too large for a record")),
            Self::Value(error) => named(py, error, name),
        }
    }
}

type Result<T> = std::result::Result<T, EncodeError>;

/// Puts a name before the text of one of our own exceptions.
fn named(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let text = error.value(py).to_string();
    let dot = if text.contains(": ") && !text.starts_with("expected") {
        "."
    } else {
        ": "
    };
    let text = format!("{name}{dot}{text}");
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(text)
    } else if error.is_instance_of::<PyValueError>(py) {
        PyValueError::new_err(text)
    } else {
        error
    }
}

/// The largest record: that of a journal by default.
const LEN_MAX: usize = 1 << 28;

/// Writes into memory that grows until it suffices.
pub(super) fn packed(write: impl Fn(&mut Packer<'_>) -> Result<()>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 512];
    loop {
        let mut out = Packer::new(&mut bytes);
        match write(&mut out) {
            Ok(()) => {
                let len = out.len();
                bytes.truncate(len);
                return Ok(bytes);
            }
            Err(EncodeError::Full) if bytes.len() < LEN_MAX => bytes = vec![0; bytes.len() * 4],
            Err(error) => return Err(error),
        }
    }
}

fn expected(what: &str, found: &Bound<'_, PyAny>) -> EncodeError {
    let found = type_name(found);
    PyTypeError::new_err(format!("expected {what}, found {found}")).into()
}

/// Writes a float of 8 or 4 bytes.
fn encode_float(
    value: &Bound<'_, PyAny>,
    ty: &Type,
    wrong: impl Fn() -> EncodeError,
    out: &mut Packer<'_>,
) -> Result<()> {
    let number = match value.cast::<PyFloat>() {
        Ok(float) => float.value(),
        // A bool is an int of Python.
        Err(_) if value.is_exact_instance_of::<PyBool>() => return Err(wrong()),
        Err(_) if value.is_instance_of::<PyInt>() => value.extract()?,
        Err(_) => return Err(wrong()),
    };
    match (ty, millstream_wire::narrowed(number)) {
        (Type::F64, _) => out.f64(number)?,
        (_, Some(narrow)) => out.f32(narrow)?,
        (_, None) => {
            let text = format!("{number:e} is out of range for f32");
            return Err(PyValueError::new_err(text).into());
        }
    }
    Ok(())
}

/// Writes a value of the type.
pub(super) fn encode(
    value: &Bound<'_, PyAny>,
    ty: &Type,
    named: &[Named],
    schema: &Schema,
    out: &mut Packer<'_>,
) -> Result<()> {
    let wrong = || expected(&schema.type_name(ty), value);
    match ty {
        Type::Str => out.str(value.cast::<PyString>().map_err(|_| wrong())?.to_str()?)?,
        Type::F64 | Type::F32 => encode_float(value, ty, wrong, out)?,
        Type::Bool => out.bool(value.cast::<PyBool>().map_err(|_| wrong())?.is_true())?,
        Type::Char => {
            let text = value.cast::<PyString>().map_err(|_| wrong())?.to_str()?;
            if text.chars().count() != 1 {
                return Err(PyValueError::new_err(format!(
                    "expected one character, found {text:?}"
                ))
                .into());
            }
            out.str(text)?;
        }
        Type::Bytes => out.bytes(value.cast::<PyBytes>().map_err(|_| wrong())?.as_bytes())?,
        Type::Decimal => {
            if type_name(value) != "Decimal" {
                return Err(wrong());
            }
            let text = format!("{}", value.call_method1("__format__", ("f",))?);
            out.str(millstream_wire::Decimal::new(text)?.as_str())?;
        }
        Type::Option(_) if value.is_none() => out.nil()?,
        Type::Option(inner) => return encode(value, inner, named, schema, out),
        Type::List(inner) => {
            let items = value.cast::<PyList>().map_err(|_| wrong())?;
            out.array(items.len())?;
            out.deeper(|out| {
                let mut items = items.iter();
                items.try_for_each(|item| encode(&item, inner, named, schema, out))
            })?;
        }
        Type::Map(key, inner) => {
            let pairs = value.cast::<PyDict>().map_err(|_| wrong())?;
            out.map(pairs.len())?;
            out.deeper(|out| {
                pairs.iter().try_for_each(|(k, v)| {
                    encode(&k, key, named, schema, out)?;
                    encode(&v, inner, named, schema, out)
                })
            })?;
        }
        Type::Named(index) => encode_named(value, &named[*index], ty, named, schema, out)?,
        integer => {
            if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
                return Err(wrong());
            }
            encode_integer(value, integer, out)?;
        }
    }
    Ok(())
}

fn encode_integer(value: &Bound<'_, PyAny>, ty: &Type, out: &mut Packer<'_>) -> Result<()> {
    let out_of_range = || {
        let value = value.to_string();
        let kind = ty.scalar_name();
        PyValueError::new_err(Misfit::Range { value, kind }.to_string())
    };
    let overflow = |error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            out_of_range()
        } else {
            error
        }
    };
    if *ty == Type::U64 {
        return Ok(out.uint(value.extract::<u64>().map_err(overflow)?)?);
    }
    let number: i64 = value.extract().map_err(overflow)?;
    match ty.integer_range() {
        Some((min, max)) if i128::from(number) < min || i128::from(number) > max => {
            Err(out_of_range().into())
        }
        _ => Ok(out.int(number)?),
    }
}

fn encode_named(
    value: &Bound<'_, PyAny>,
    own: &Named,
    ty: &Type,
    named: &[Named],
    schema: &Schema,
    out: &mut Packer<'_>,
) -> Result<()> {
    let py = value.py();
    match own {
        Named::Struct(own) => {
            if !value.get_type().is(own.class.bind(py)) && !value.is_instance(own.class.bind(py))? {
                return Err(expected(&schema.type_name(ty), value));
            }
            out.array(own.fields.len())?;
            out.deeper(|out| encode_fields(value, own, named, schema, out))?;
        }
        Named::Enum(members) => {
            let found = members.iter().position(|member| value.is(member.bind(py)));
            let number = found.ok_or_else(|| expected(&schema.type_name(ty), value))?;
            out.deeper(|out| out.uint(number as u64))?;
        }
        Named::Union(variants) => {
            let class = value.get_type();
            let found = variants
                .iter()
                .position(|variant| class.is(variant.class.bind(py)));
            let number = found.ok_or_else(|| expected(&schema.type_name(ty), value))?;
            let variant = &variants[number];
            out.variant(number as u64, variant.fields.len())?;
            out.deeper(|out| encode_fields(value, variant, named, schema, out))?;
        }
    }
    Ok(())
}

fn encode_fields(
    value: &Bound<'_, PyAny>,
    own: &PyStruct,
    named: &[Named],
    schema: &Schema,
    out: &mut Packer<'_>,
) -> Result<()> {
    let py = value.py();
    for PyField { name, ty } in &own.fields {
        let field = value.getattr(name.bind(py))?;
        let encoded = encode(&field, ty, named, schema, out);
        encoded.map_err(|error| match error {
            EncodeError::Full => error,
            error => error.into_python(py, &name.to_string()).into(),
        })?;
    }
    Ok(())
}
