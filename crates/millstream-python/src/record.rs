//! Records: objects of a fixed layout that keep their bytes and decode a field when it is read.
//!
//! A record owns its bytes, inside the object up to [`INLINE_BYTES`], so that keeping one never keeps
//! the read buffer it came from. A step that reads two fields pays for two fields. Constant fields
//! are compared when the record is made.

mod constant;
mod field;
mod layout;

use std::cell::Cell;

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

pub(crate) use field::Field;
pub(crate) use layout::Layout;

use crate::show::show;

/// Records up to this size are one object; longer ones own a second allocation.
pub(crate) const INLINE_BYTES: usize = 72;

/// The bytes of a record.
enum Body {
    Inline(u8, [u8; INLINE_BYTES]),
    Boxed(Box<[u8]>),
}

impl Body {
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        let length = bytes.len();
        if length > INLINE_BYTES {
            return Body::Boxed(bytes.into());
        }
        let mut inline = [0; INLINE_BYTES];
        inline[..length].copy_from_slice(bytes);
        Body::Inline(length as u8, inline)
    }
}

thread_local! {
    /// The bytes for the record that this thread is creating. Calling the class without an argument is
    /// the fastest way to create an instance of a Python subclass, so the bytes are passed here.
    static PENDING: Cell<Option<Body>> = const { Cell::new(None) };
}

/// The base of all record classes.
#[pyclass(subclass, frozen, module = "millstream._millstream")]
pub(crate) struct Record {
    body: Body,
}

impl Record {
    /// The record as it is on the wire.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.body {
            Body::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Body::Boxed(bytes) => bytes,
        }
    }
}

/// Makes records of one class.
pub(crate) struct RecordMaker {
    class: Py<PyType>,
    layout: Py<Layout>,
}

impl RecordMaker {
    /// The maker of a record class; `None` when the class is none.
    pub(crate) fn of(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        if !class.is_subclass_of::<Record>()? {
            return Ok(None);
        }
        let layout = layout_of(class)?.unbind();
        let class = class.clone().unbind();
        Ok(Some(RecordMaker { class, layout }))
    }

    /// A record of these bytes.
    #[inline]
    pub(crate) fn make<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.bind(py);
        self.layout.get().check(class, bytes)?;
        PENDING.set(Some(Body::of(bytes)));
        class.call0()
    }
}

fn class_name(class: &Bound<'_, PyType>) -> String {
    let name = class.name();
    name.map_or_else(|_| "record".to_owned(), |name| name.to_string())
}

fn layout_of<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, Layout>> {
    let layout = class.getattr("_layout").ok();
    layout
        .and_then(|layout| layout.cast_into::<Layout>().ok())
        .ok_or_else(|| PyTypeError::new_err(format!("{} has no format", show(class.as_any()))))
}

#[pymethods]
impl Record {
    #[new]
    fn new() -> PyResult<Self> {
        match PENDING.take() {
            Some(body) => Ok(Record { body }),
            None => Err(PyTypeError::new_err(
                "records are made by their class's pack and unpack",
            )),
        }
    }

    /// Makes a record of values, by position or by name.
    ///
    /// Args:
    ///     values: the values of the fields, in order.
    ///     named: the values of further fields.
    ///
    /// Returns:
    ///     The record.
    ///
    /// Raises:
    ///     TypeError: a value is missing, unknown or of a wrong type.
    ///     ValueError: a value is out of range.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Quote(ms.Record, format=">4sd", fields="symbol bid"):
    ///     ...     pass
    ///     >>> Quote.pack(b" IBM", bid=10.5)
    ///     Quote(symbol=b' IBM', bid=10.5)
    #[classmethod]
    #[pyo3(signature = (*values, **named))]
    fn pack<'py>(
        cls: &Bound<'py, PyType>,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let layout = layout_of(cls)?;
        let packed = layout.get().pack(cls, values, named)?;
        Self::unpack(cls, packed.as_bytes())
    }

    /// Makes a record of its bytes.
    ///
    /// Args:
    ///     data: the bytes.
    ///
    /// Returns:
    ///     The record.
    ///
    /// Raises:
    ///     ValueError: the length is wrong, or a constant field has another value.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Quote(ms.Record, format=">4sd", fields="symbol bid"):
    ///     ...     pass
    ///     >>> Quote.unpack(b" IBM" + bytes(8)).bid
    ///     0.0
    #[classmethod]
    fn unpack<'py>(cls: &Bound<'py, PyType>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        layout_of(cls)?.get().check(cls, data)?;
        PENDING.set(Some(Body::of(data)));
        cls.call0()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.as_bytes())
    }

    fn __len__(&self) -> usize {
        self.as_bytes().len()
    }

    fn __richcmp__(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyAny>,
        op: CompareOp,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let same = match other.cast::<Record>() {
            Ok(record) if record.get_type().is(slf.get_type()) => {
                slf.get().as_bytes() == record.get().as_bytes()
            }
            _ => return Ok(py.NotImplemented()),
        };
        let answer = match op {
            CompareOp::Eq => same,
            CompareOp::Ne => !same,
            _ => return Ok(py.NotImplemented()),
        };
        Ok(answer.into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyBytes::new(py, self.as_bytes()).hash()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class = slf.get_type();
        let layout = layout_of(&class)?;
        let mut shown = Vec::new();
        for field in &layout.get().fields {
            let value = slf.getattr(field.0.as_str())?;
            shown.push(format!("{}={}", field.0, value.repr()?.to_string_lossy()));
        }
        Ok(format!("{}({})", class.name()?, shown.join(", ")))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let bytes = PyBytes::new(py, slf.get().as_bytes());
        let unpack = slf.get_type().getattr("unpack")?;
        (unpack, (bytes,)).into_pyobject(py)
    }

    /// Returns the fields as a dict.
    ///
    /// Returns:
    ///     The values by name.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> class Quote(ms.Record, format=">4sd", fields="symbol bid"):
    ///     ...     pass
    ///     >>> Quote.pack(b" IBM", 10.5).to_dict()
    ///     {'symbol': b' IBM', 'bid': 10.5}
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let values = PyDict::new(slf.py());
        for (name, _) in &layout_of(&slf.get_type())?.get().fields {
            values.set_item(name, slf.getattr(name.as_str())?)?;
        }
        Ok(values)
    }
}
