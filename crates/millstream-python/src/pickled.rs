//! Pickles of objects that are a class and some plain values, as most states are, and of lists and dictionaries of plain values.
//!
//! The module `pickle` looks up, for each object, whether its class can be found by its name: that takes ten times as long as all the
//! rest of a small state. Here that is done once for each class (`way` in `millstream/_saving.py`); what is written is a pickle of
//! protocol 5 like any other, and read as such.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

/// The opcodes: <https://docs.python.org/3/library/pickletools.html>.
const PROTOCOL: [u8; 2] = [0x80, 5];
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SET_ITEMS: u8 = b'u';
const PAIR: u8 = 0x86;
const BUILD: u8 = b'b';
const STOP: u8 = b'.';
const NONE: u8 = b'N';
const TRUE: u8 = 0x88;
const FALSE: u8 = 0x89;
const INTEGER: u8 = b'J';
const LONG: u8 = 0x8A;
const FLOAT: u8 = b'G';
const SHORT_TEXT: u8 = 0x8C;
const TEXT: u8 = b'X';

/// How the objects of a class are written.
#[pyclass(frozen)]
pub(crate) struct Way {
    /// The pickle of one without attributes, less its last byte.
    head: Vec<u8>,
    /// The attributes, if these are slots.
    slots: Option<Vec<Py<PyString>>>,
}

impl Way {
    /// As `way` in `millstream/_saving.py` tells it; `None` when it tells something else.
    pub(crate) fn told(told: &Bound<'_, PyAny>) -> Option<Self> {
        let (head, slots) = told.extract().ok()?;
        Some(Way { head, slots })
    }
}

/// Appends the pickle of an object of a class. False, and nothing is appended, when one of its attributes is more than a plain value,
/// or missing.
pub(crate) fn instance(object: &Bound<'_, PyAny>, way: &Way, out: &mut Vec<u8>) -> PyResult<bool> {
    whole(out, |out| {
        out.extend_from_slice(&way.head);
        if let Some(names) = &way.slots {
            return slots(object, names, out);
        }
        let attributes = object.getattr(intern!(object.py(), "__dict__"))?;
        let Ok(attributes) = attributes.cast_exact::<PyDict>() else {
            return Ok(false);
        };
        // Without attributes there is nothing to build.
        if !attributes.is_empty() {
            if !entries(attributes, out) {
                return Ok(false);
            }
            out.push(BUILD);
        }
        Ok(true)
    })
}

/// Appends the pickle of a list or a dictionary. False, and nothing is appended, when it is neither, or holds more than plain values.
pub(crate) fn container(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<bool> {
    whole(out, |out| {
        out.extend(PROTOCOL);
        if let Ok(items) = object.cast_exact::<PyDict>() {
            return Ok(entries(items, out));
        }
        let Ok(items) = object.cast_exact::<PyList>() else {
            return Ok(false);
        };
        out.extend([EMPTY_LIST, MARK]);
        let written = items.iter().all(|item| plain(&item, out));
        out.push(APPENDS);
        Ok(written)
    })
}

/// Appends what `write` writes as a whole, or nothing.
fn whole(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> PyResult<bool>) -> PyResult<bool> {
    let start = out.len();
    let written = write(out);
    match written {
        Ok(true) => out.push(STOP),
        _ => out.truncate(start),
    }
    written
}

/// A dictionary; false when it holds more than plain values.
fn entries(items: &Bound<'_, PyDict>, out: &mut Vec<u8>) -> bool {
    out.extend([EMPTY_DICT, MARK]);
    let written = items
        .iter()
        .all(|(key, value)| plain(&key, out) && plain(&value, out));
    out.push(SET_ITEMS);
    written
}

/// The state of an object with slots is a pair: nothing, and what is in them.
fn slots(object: &Bound<'_, PyAny>, names: &[Py<PyString>], out: &mut Vec<u8>) -> PyResult<bool> {
    out.extend([NONE, EMPTY_DICT, MARK]);
    for name in names {
        let name = name.bind(object.py());
        let Some(value) = object.getattr_opt(name)? else {
            return Ok(false);
        };
        if !plain(name.as_any(), out) || !plain(&value, out) {
            return Ok(false);
        }
    }
    out.extend([SET_ITEMS, PAIR, BUILD]);
    Ok(true)
}

/// Appends a plain value; false when it is something else.
fn plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    if value.is_none() {
        out.push(NONE);
    } else if let Ok(flag) = value.cast_exact::<PyBool>() {
        out.push(if flag.is_true() { TRUE } else { FALSE });
    } else if let Ok(float) = value.cast_exact::<PyFloat>() {
        out.push(FLOAT);
        out.extend_from_slice(&float.value().to_be_bytes());
    } else if value.is_exact_instance_of::<PyInt>() {
        let Ok(number) = value.extract::<i64>() else {
            return false;
        };
        if let Ok(small) = i32::try_from(number) {
            out.push(INTEGER);
            out.extend_from_slice(&small.to_le_bytes());
        } else {
            out.extend([LONG, 8]);
            out.extend_from_slice(&number.to_le_bytes());
        }
    } else if let Ok(text) = value.cast_exact::<PyString>()
        && let Ok(text) = text.to_str()
    {
        if let Ok(length) = u8::try_from(text.len()) {
            out.extend([SHORT_TEXT, length]);
        } else if let Ok(length) = u32::try_from(text.len()) {
            out.push(TEXT);
            out.extend_from_slice(&length.to_le_bytes());
        } else {
            return false;
        }
        out.extend_from_slice(text.as_bytes());
    } else {
        return false;
    }
    true
}
