//! Pickles of objects that are a class and some plain values, as most states are, and of lists and dictionaries of
//! plain values.
//!
//! The module `pickle` looks up, for each object, whether its class can be found by its name: that takes ten times as
//! long as all the rest of a small state. Here that is done once for each class (`way` in
//! `millstream/_values/saving.py`); the output is a pickle of protocol 5 like any other, and read as such.

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

/// How objects of a type are written.
#[pyclass(frozen)]
pub(crate) struct PickleMethod(Kind);

enum Kind {
    List,
    Dict,
    Object {
        /// The pickle of one without attributes, less its last byte.
        head: Vec<u8>,
        /// The attributes, if these are slots.
        slots: Option<Vec<Name>>,
    },
    /// By the module `pickle`.
    Pickled,
    /// By `dump` in `millstream/_values/saving.py`.
    Dumped,
}

/// The name of an attribute, and how it is written.
type Name = (Py<PyString>, Vec<u8>);

fn named(name: Py<PyString>, py: Python<'_>) -> PyResult<Name> {
    let mut written = Vec::new();
    text(name.bind(py).to_str()?, &mut written);
    Ok((name, written))
}

impl PickleMethod {
    /// That of objects of the type of this one.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.is_exact_instance_of::<PyList>() {
            return Ok(PickleMethod(Kind::List));
        }
        if object.is_exact_instance_of::<PyDict>() {
            return Ok(PickleMethod(Kind::Dict));
        }
        let saving = object.py().import("millstream._values.saving")?;
        let answer = saving.call_method1("way", (object,))?;
        type HeadAndSlots = (Vec<u8>, Option<Vec<Py<PyString>>>);
        Ok(PickleMethod(
            if let Ok((head, names)) = answer.extract::<HeadAndSlots>() {
                let slots = names.map(|names| {
                    names
                        .into_iter()
                        .map(|name| named(name, object.py()))
                        .collect()
                });
                Kind::Object {
                    head,
                    slots: slots.transpose()?,
                }
            } else if answer.is_truthy()? {
                Kind::Pickled
            } else {
                Kind::Dumped
            },
        ))
    }

    /// True when the module `pickle` writes other objects of this type.
    pub(crate) fn is_pickled(&self) -> bool {
        !matches!(self.0, Kind::Dumped)
    }

    /// Appends the contents of an object, without its class, to `parts`; false when they are not known.
    pub(crate) fn take<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        parts: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<bool> {
        match &self.0 {
            Kind::List => parts.extend(object.cast_exact::<PyList>()?.iter()),
            Kind::Dict => take_entries(object.cast_exact()?, parts),
            Kind::Object {
                slots: Some(names), ..
            } => {
                for (name, _) in names {
                    let Some(value) = object.getattr_opt(name)? else {
                        return Ok(false);
                    };
                    parts.push(value);
                }
            }
            Kind::Object { slots: None, .. } => {
                let attributes = object.getattr(intern!(object.py(), "__dict__"))?;
                let Ok(attributes) = attributes.cast_exact() else {
                    return Ok(false);
                };
                take_entries(attributes, parts);
            }
            Kind::Pickled | Kind::Dumped => return Ok(false),
        }
        Ok(true)
    }

    /// Appends the pickle of an object of which these are the parts. False, and nothing is appended, when one of them
    /// is more than a plain value.
    pub(crate) fn write(&self, parts: &[Bound<'_, PyAny>], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written = match &self.0 {
            Kind::List => {
                out.extend(PROTOCOL);
                out.extend([EMPTY_LIST, MARK]);
                let written = parts.iter().all(|item| plain(item, out));
                out.push(APPENDS);
                written
            }
            Kind::Dict => {
                out.extend(PROTOCOL);
                entries(parts, out)
            }
            Kind::Object {
                head,
                slots: Some(names),
            } => {
                out.extend_from_slice(head);
                slots(names, parts, out)
            }
            Kind::Object { head, slots: None } => {
                out.extend_from_slice(head);
                // Without attributes there is nothing to build.
                parts.is_empty() || {
                    let written = entries(parts, out);
                    out.push(BUILD);
                    written
                }
            }
            Kind::Pickled | Kind::Dumped => false,
        };
        if written {
            out.push(STOP)
        } else {
            out.truncate(start)
        }
        written
    }
}

fn take_entries<'py>(items: &Bound<'py, PyDict>, parts: &mut Vec<Bound<'py, PyAny>>) {
    parts.extend(items.iter().flat_map(|(key, value)| [key, value]));
}

/// A dictionary from alternating keys and values; false when one is more than a plain value.
fn entries(parts: &[Bound<'_, PyAny>], out: &mut Vec<u8>) -> bool {
    out.extend([EMPTY_DICT, MARK]);
    let written = parts.iter().all(|part| plain(part, out));
    out.push(SET_ITEMS);
    written
}

/// The state of an object with slots is a pair: None, and the contents of the slots.
fn slots(names: &[Name], values: &[Bound<'_, PyAny>], out: &mut Vec<u8>) -> bool {
    out.extend([NONE, EMPTY_DICT, MARK]);
    for ((_, name), value) in names.iter().zip(values) {
        out.extend_from_slice(name);
        if !plain(value, out) {
            return false;
        }
    }
    out.extend([SET_ITEMS, PAIR, BUILD]);
    true
}

/// A value without parts.
pub(crate) enum Plain<'a> {
    None,
    Bool(bool),
    Float(f64),
    Integer(i64),
    Text(&'a str),
}

impl<'a> Plain<'a> {
    /// The plain value of an object; `None` for other objects, and for numbers and texts out of range.
    pub(crate) fn of(value: &'a Bound<'_, PyAny>) -> Option<Self> {
        Some(if value.is_none() {
            Plain::None
        } else if let Ok(flag) = value.cast_exact::<PyBool>() {
            Plain::Bool(flag.is_true())
        } else if let Ok(float) = value.cast_exact::<PyFloat>() {
            Plain::Float(float.value())
        } else if value.is_exact_instance_of::<PyInt>() {
            Plain::Integer(value.extract().ok()?)
        } else {
            Plain::Text(value.cast_exact::<PyString>().ok()?.to_str().ok()?)
        })
    }
}

/// Appends a plain value; false when it is something else.
fn plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    match Plain::of(value) {
        None => return false,
        Some(Plain::None) => out.push(NONE),
        Some(Plain::Bool(flag)) => out.push(if flag { TRUE } else { FALSE }),
        Some(Plain::Float(float)) => {
            out.push(FLOAT);
            out.extend_from_slice(&float.to_be_bytes());
        }
        Some(Plain::Integer(number)) => {
            if let Ok(small) = i32::try_from(number) {
                out.push(INTEGER);
                out.extend_from_slice(&small.to_le_bytes());
            } else {
                out.extend([LONG, 8]);
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        Some(Plain::Text(words)) => return text(words, out),
    }
    true
}

/// Appends a text; false when it is too long.
fn text(words: &str, out: &mut Vec<u8>) -> bool {
    if let Ok(length) = u8::try_from(words.len()) {
        out.extend([SHORT_TEXT, length]);
    } else if let Ok(length) = u32::try_from(words.len()) {
        out.push(TEXT);
        out.extend_from_slice(&length.to_le_bytes());
    } else {
        return false;
    }
    out.extend_from_slice(words.as_bytes());
    true
}
