//! The layout of a record class: a format string of Python's `struct` module, with names.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use super::class_name;
use super::constant::Constant;
use super::field::{Field, Kind};

/// The layout of one record class.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Layout {
    /// The fields by name, in order.
    pub(crate) fields: Vec<(String, Py<Field>)>,
    /// The length of a record in bytes.
    #[pyo3(get)]
    pub(crate) size: usize,
    constants: Vec<Constant>,
    packer: Py<PyAny>,
}

#[pymethods]
impl Layout {
    /// Reads `format`; `names` are those of its fields, in order, and `constants` are the values of
    /// those that have the same in every record.
    #[new]
    fn new(
        py: Python<'_>,
        format: &str,
        names: Vec<String>,
        constants: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
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
        let mut fixed = Vec::new();
        for (name, span) in names.into_iter().zip(spans) {
            let field = Field {
                name: name.clone(),
                kind: span.kind,
                offset: span.offset,
                size: span.size,
                big_endian,
            };
            if let Some(value) = constants.get_item(&name)? {
                let alone = format!("{}{}", &format[..1], span.format);
                fixed.push(Constant::new(field.clone(), &alone, value)?);
            }
            fields.push((name, Py::new(py, field)?));
        }
        let packer = py.import("struct")?.getattr("Struct")?.call1((format,))?;
        Ok(Layout {
            fields,
            size,
            constants: fixed,
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
    /// Raises unless `bytes` are a record of `class`: of its length, with its constants in their places.
    #[inline]
    pub(crate) fn check(&self, class: &Bound<'_, PyType>, bytes: &[u8]) -> PyResult<()> {
        if bytes.len() != self.size {
            return Err(self.wrong_size(class, bytes.len()));
        }
        for constant in &self.constants {
            if !constant.holds(bytes) {
                return Err(constant.violated(class, bytes));
            }
        }
        Ok(())
    }

    #[cold]
    fn wrong_size(&self, class: &Bound<'_, PyType>, found: usize) -> PyErr {
        let class = class_name(class);
        let size = self.size;
        PyValueError::new_err(format!("{class} has {size} bytes, not {found}"))
    }

    /// Packs values, given by position or by name. Constants have no position and need not be given.
    pub(crate) fn pack<'py>(
        &self,
        class: &Bound<'py, PyType>,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let py = class.py();
        let mut ordered = Vec::with_capacity(self.fields.len());
        let mut by_position = values.iter();
        let mut by_name = 0;
        for (name, _) in &self.fields {
            let constant = self.constants.iter().find(|constant| constant.is(name));
            if constant.is_none()
                && let Some(value) = by_position.next()
            {
                ordered.push(value);
                continue;
            }
            let given = match named {
                Some(named) => named.get_item(name)?,
                None => None,
            };
            by_name += usize::from(given.is_some());
            let value = given.or_else(|| constant.map(|constant| constant.value.bind(py).clone()));
            ordered.push(value.ok_or_else(|| {
                let class = class_name(class);
                PyTypeError::new_err(format!("{class}.pack: no value for {name}"))
            })?);
        }
        if by_position.next().is_some() || by_name != named.map_or(0, |named| named.len()) {
            return Err(self.wrong_values(class));
        }
        let packed = self.packer.bind(py).call1(PyTuple::new(py, ordered)?)?;
        Ok(packed.cast_into::<PyBytes>()?)
    }

    #[cold]
    fn wrong_values(&self, class: &Bound<'_, PyType>) -> PyErr {
        let names = self.fields.iter().map(|(name, _)| name.as_str());
        let free: Vec<_> = names
            .filter(|name| !self.constants.iter().any(|constant| constant.is(name)))
            .collect();
        let class = class_name(class);
        let wanted = free.len();
        let names = free.join(" ");
        PyTypeError::new_err(format!(
            "{class}.pack takes {wanted} values, each once: {names}"
        ))
    }
}

/// One field of a format.
struct Span {
    kind: Kind,
    offset: usize,
    size: usize,
    /// The format of this field alone, without a byte order.
    format: String,
}

/// Each field, and the length of the whole.
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
                let format = match code {
                    's' => format!("{size}s"),
                    _ => code.to_string(),
                };
                spans.push(Span {
                    kind,
                    offset,
                    size,
                    format,
                });
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
