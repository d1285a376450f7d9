//! The layout of a record class: a format string of Python's `struct` module, with names.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use super::field::{Field, Kind};

/// The layout of one record class.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Layout {
    /// The fields by name, in order.
    pub(crate) fields: Vec<(String, Py<Field>)>,
    /// The length of a record in bytes.
    #[pyo3(get)]
    pub(crate) size: usize,
    packer: Py<PyAny>,
}

#[pymethods]
impl Layout {
    /// Reads `format`; `names` are those of its fields, in order.
    #[new]
    fn new(py: Python<'_>, format: &str, names: Vec<String>) -> PyResult<Self> {
        let (spans, size) = parse(format).map_err(PyValueError::new_err)?;
        if spans.len() != names.len() {
            return Err(PyValueError::new_err(format!(
                "format {format:?} has {} fields, but {} names are given: {}",
                spans.len(),
                names.len(),
                names.join(" ")
            )));
        }
        let big_endian = format.starts_with(['>', '!'])
            || (format.starts_with('=') && cfg!(target_endian = "big"));
        let mut fields = Vec::with_capacity(names.len());
        for (name, (kind, offset, size)) in names.into_iter().zip(spans) {
            let field = Field {
                name: name.clone(),
                kind,
                offset,
                size,
                big_endian,
            };
            fields.push((name, Py::new(py, field)?));
        }
        let packer = py.import("struct")?.getattr("Struct")?.call1((format,))?;
        Ok(Layout {
            fields,
            size,
            packer: packer.getattr("pack")?.unbind(),
        })
    }

    /// The descriptors of the fields, by name.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (name, field) in &self.fields {
            fields.set_item(name, field)?;
        }
        Ok(fields)
    }
}

impl Layout {
    /// Packs values, given by position or by name.
    pub(crate) fn pack<'py>(
        &self,
        class: &Bound<'py, PyType>,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = class.py();
        let mut ordered: Vec<_> = values.iter().collect();
        let mut used = 0;
        for (name, _) in self.fields.iter().skip(ordered.len()) {
            match named
                .map(|named| named.get_item(name))
                .transpose()?
                .flatten()
            {
                Some(value) => ordered.push(value),
                None => {
                    let class = class.name()?;
                    return Err(PyTypeError::new_err(format!(
                        "{class}.pack: no value for {name}"
                    )));
                }
            }
            used += 1;
        }
        let given = named.map_or(0, |named| named.len());
        if ordered.len() != self.fields.len() || used != given {
            let (class, wanted) = (class.name()?, self.fields.len());
            let names: Vec<_> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
            return Err(PyTypeError::new_err(format!(
                "{class}.pack takes {wanted} values, each once: {}",
                names.join(" ")
            )));
        }
        let packed = self.packer.bind(py).call1(PyTuple::new(py, ordered)?)?;
        Ok(packed.cast_into::<PyBytes>()?)
    }
}

type Span = (Kind, usize, usize);

/// Kind, offset and size of each field, and the length of the whole.
fn parse(format: &str) -> Result<(Vec<Span>, usize), String> {
    let Some(codes) = format.strip_prefix(['<', '>', '=', '!']) else {
        return Err(format!(
            "format {format:?} must begin with its byte order: one of < > = ! \
             (native alignment is not portable)"
        ));
    };
    let mut spans = Vec::new();
    let mut offset: usize = 0;
    let mut count: Option<usize> = None;
    let too_long = || format!("format {format:?} is too long");
    for code in codes.chars() {
        if let Some(digit) = code.to_digit(10) {
            let so_far = count.unwrap_or(0).checked_mul(10);
            count = Some(
                so_far
                    .and_then(|n| n.checked_add(digit as usize))
                    .ok_or_else(too_long)?,
            );
            continue;
        }
        if code.is_ascii_whitespace() && count.is_none() {
            continue;
        }
        let times = count.take();
        let (kind, size) = match code {
            'x' | 's' => (Kind::Bytes, times.unwrap_or(1)),
            other => character(other)
                .ok_or_else(|| format!("format {format:?}: {other:?} is not supported"))?,
        };
        let repeat = if matches!(code, 'x' | 's') {
            1
        } else {
            times.unwrap_or(1)
        };
        if size
            .checked_mul(repeat)
            .is_none_or(|bytes| bytes > RECORD_BYTES_MAX - offset)
        {
            return Err(too_long());
        }
        for _ in 0..repeat {
            if code != 'x' {
                spans.push((kind, offset, size));
            }
            offset += size;
        }
    }
    match count {
        Some(_) => Err(format!("format {format:?} ends in a number")),
        None => Ok((spans, offset)),
    }
}

/// The longest record.
const RECORD_BYTES_MAX: usize = 1 << 20;

fn character(code: char) -> Option<(Kind, usize)> {
    Some(match code {
        'c' => (Kind::Bytes, 1),
        'b' => (Kind::Signed, 1),
        'B' => (Kind::Unsigned, 1),
        '?' => (Kind::Bool, 1),
        'h' => (Kind::Signed, 2),
        'H' => (Kind::Unsigned, 2),
        'i' | 'l' => (Kind::Signed, 4),
        'I' | 'L' => (Kind::Unsigned, 4),
        'q' => (Kind::Signed, 8),
        'Q' => (Kind::Unsigned, 8),
        'e' => (Kind::Half, 2),
        'f' => (Kind::Float, 4),
        'd' => (Kind::Double, 8),
        _ => return None,
    })
}
