//! Keys: which objects can be one, their hashes, and how they are saved.
//!
//! A key is exactly a `str`, `bytes`, `int` or `bool`, or a `tuple` of keys; [`KeyPart::of`] and [`check_key`] are the
//! only definition. Subclasses are refused: they may have an equality of their own, which no hash follows, and would
//! have another type after a restart. So a key that `key_by` accepts can be hashed as in Rust (`millstream_flow::key`),
//! so that all processes and both languages agree on its worker, can be saved, and is loaded as an equal object of the
//! same type.

use millstream_flow::key::{AnyKey, Key, hash_bytes, hash_text, hash_tuple};
use millstream_flow::key::{save_bool, save_bytes, save_integer, save_text, save_tuple};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::show::{show, type_name};

/// The longest key: the bytes of its texts and of its bytes, and `MEMBER_BYTES` for each other member.
const KEY_BYTES_MAX: usize = 1 << 20;
/// The largest size of a saved integer or boolean, and of the header of another member.
const MEMBER_BYTES: usize = 18;

/// A key, or a member of one.
pub(crate) enum KeyPart<'a, 'py> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Integer(i128),
    Bool(bool),
    Tuple(&'a Bound<'py, PyTuple>),
}

/// Why an object is no key.
enum Fault {
    Type,
    Surrogate,
    Wide,
    Deep,
    Long,
}

/// An object that is no key, and where it is in the tuple.
pub(crate) struct NotAKey<'py> {
    part: Bound<'py, PyAny>,
    fault: Fault,
    /// The indexes that lead to the part, the last one first.
    path: Vec<usize>,
}

impl<'a, 'py> KeyPart<'a, 'py> {
    /// Reads a key by its exact type. The members of a tuple are not read.
    pub(crate) fn of(object: &'a Bound<'py, PyAny>) -> Result<Self, NotAKey<'py>> {
        if let Ok(text) = object.cast_exact::<PyString>() {
            let text = text.to_str();
            text.map(KeyPart::Text)
                .map_err(|_| NotAKey::new(object, Fault::Surrogate))
        } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            Ok(KeyPart::Bytes(bytes.as_bytes()))
        } else if object.is_exact_instance_of::<PyInt>() {
            let narrow = object.extract::<i64>().map(i128::from);
            let number = narrow.or_else(|_| object.extract::<i128>());
            number
                .map(KeyPart::Integer)
                .map_err(|_| NotAKey::new(object, Fault::Wide))
        } else if let Ok(flag) = object.cast::<PyBool>() {
            Ok(KeyPart::Bool(flag.is_true()))
        } else if let Ok(members) = object.cast_exact::<PyTuple>() {
            Ok(KeyPart::Tuple(members))
        } else {
            Err(NotAKey::new(object, Fault::Type))
        }
    }

    /// An upper bound of the number of bytes that are saved of the part, without the members of a tuple.
    fn size(&self) -> usize {
        match self {
            KeyPart::Text(text) => text.len() + MEMBER_BYTES,
            KeyPart::Bytes(bytes) => bytes.len() + MEMBER_BYTES,
            KeyPart::Integer(_) | KeyPart::Bool(_) | KeyPart::Tuple(_) => MEMBER_BYTES,
        }
    }
}

impl<'py> NotAKey<'py> {
    fn new(part: &Bound<'py, PyAny>, fault: Fault) -> Self {
        NotAKey {
            part: part.clone(),
            fault,
            path: Vec::new(),
        }
    }

    /// The part that is at fault, as an index of the key.
    fn place(&self) -> String {
        let indexes = self.path.iter().rev();
        indexes.fold("key".to_owned(), |place, index| format!("{place}[{index}]"))
    }

    /// How the function of `key_by` makes a key of `item.user`, the object that is none.
    fn remedy(&self) -> String {
        let call = |function: &str| format!("{function}(item.user)");
        let has = |object: &Bound<'_, PyAny>, name: &str| object.hasattr(name).unwrap_or(false);
        let part = &self.part;
        match self.fault {
            Fault::Surrogate => "item.user.encode(\"utf-8\", \"surrogatepass\")".to_owned(),
            Fault::Wide => call("hex"),
            Fault::Deep => call("repr"),
            Fault::Long => "hashlib.sha256(repr(item.user).encode()).digest()".to_owned(),
            Fault::Type if part.is_none() => "item.user or \"\"".to_owned(),
            Fault::Type if has(part.get_type().as_any(), "__members__") => {
                "item.user.value".to_owned()
            }
            Fault::Type if part.is_instance_of::<PyBytes>() => call("bytes"),
            Fault::Type if part.is_instance_of::<PyTuple>() || part.is_instance_of::<PyList>() => {
                call("tuple")
            }
            Fault::Type if has(part, "__index__") => call("int"),
            Fault::Type => call("str"),
        }
    }
}

impl From<NotAKey<'_>> for PyErr {
    fn from(wrong: NotAKey<'_>) -> PyErr {
        let place = wrong.place();
        let shown = show(&wrong.part);
        let found = type_name(&wrong.part);
        let fault = match wrong.fault {
            Fault::Type => match base(&wrong.part) {
                Some(base) => format!("{shown}, of the type {found} and not exactly {base}"),
                None => format!("{shown}, of the type {found}"),
            },
            Fault::Surrogate => format!("{shown}, text with a lone surrogate, which has no UTF-8"),
            Fault::Wide => format!("{shown}, an integer of more than 128 bits"),
            Fault::Deep => format!("{shown}, nested more than {} deep", AnyKey::DEPTH_MAX),
            Fault::Long => format!("longer than {KEY_BYTES_MAX} bytes"),
        };
        let text = format!(
            "a key is str, bytes, int, bool or a tuple of them, and {place} is {fault}; convert it: key_by(lambda item: {})",
            wrong.remedy()
        );
        match wrong.fault {
            Fault::Type => PyTypeError::new_err(text),
            _ => PyValueError::new_err(text),
        }
    }
}

/// The type of keys of which the type of this object is a subclass.
fn base(part: &Bound<'_, PyAny>) -> Option<&'static str> {
    fn named<T: PyTypeInfo>(part: &Bound<'_, PyAny>, name: &'static str) -> Option<&'static str> {
        part.is_instance_of::<T>().then_some(name)
    }
    named::<PyString>(part, "str")
        .or_else(|| named::<PyBytes>(part, "bytes"))
        .or_else(|| named::<PyInt>(part, "int"))
        .or_else(|| named::<PyTuple>(part, "tuple"))
}

/// Checks that an object can be a key.
pub(crate) fn check_key<'py>(key: &Bound<'py, PyAny>) -> Result<(), NotAKey<'py>> {
    let mut room = KEY_BYTES_MAX;
    check_part(key, AnyKey::DEPTH_MAX, &mut room).map_err(|wrong| match wrong.fault {
        Fault::Long => NotAKey::new(key, Fault::Long),
        _ => wrong,
    })
}

/// Checks a part that may be nested `depth` deep; `room` is the number of bytes that are left for it.
fn check_part<'py>(
    object: &Bound<'py, PyAny>,
    depth: usize,
    room: &mut usize,
) -> Result<(), NotAKey<'py>> {
    let part = KeyPart::of(object)?;
    let left = room.checked_sub(part.size());
    *room = left.ok_or_else(|| NotAKey::new(object, Fault::Long))?;
    let KeyPart::Tuple(members) = part else {
        return Ok(());
    };
    let within = depth.checked_sub(1);
    let within = within.ok_or_else(|| NotAKey::new(object, Fault::Deep))?;
    for (index, member) in members.iter().enumerate() {
        check_part(&member, within, room).map_err(|mut wrong| {
            wrong.path.push(index);
            wrong
        })?;
    }
    Ok(())
}

/// The stable hash of a key.
pub(crate) fn stable_hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(match KeyPart::of(key)? {
        KeyPart::Text(text) => hash_text(text.as_bytes()),
        KeyPart::Bytes(bytes) => hash_bytes(bytes),
        KeyPart::Integer(number) => number.stable_hash(),
        // True is equal to 1.
        KeyPart::Bool(flag) => u8::from(flag).stable_hash(),
        KeyPart::Tuple(members) => {
            let hashes = members.iter().map(|member| stable_hash(&member));
            hash_tuple(&hashes.collect::<PyResult<Vec<_>>>()?)
        }
    })
}

/// Appends a key.
pub(crate) fn save_key(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    match KeyPart::of(key)? {
        KeyPart::Text(text) => save_text(text, out),
        KeyPart::Bytes(bytes) => save_bytes(bytes, out),
        KeyPart::Integer(number) => save_integer(number, out),
        KeyPart::Bool(flag) => save_bool(flag, out),
        KeyPart::Tuple(members) => {
            save_tuple(members.len() as u32, out);
            for member in members.iter() {
                save_key(&member, out)?;
            }
        }
    }
    Ok(())
}

/// A key as a Python object.
pub(crate) fn load_key<'py>(py: Python<'py>, key: &AnyKey) -> PyResult<Bound<'py, PyAny>> {
    Ok(match key {
        AnyKey::Text(text) => PyString::new(py, text).into_any(),
        AnyKey::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        AnyKey::Integer(number) => number.into_pyobject(py)?.into_any(),
        AnyKey::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        AnyKey::Tuple(members) => {
            let members = members.iter().map(|member| load_key(py, member));
            PyTuple::new(py, members.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
    })
}

/// The stable hash of a key, as the engine sees it.
#[pyfunction]
pub(crate) fn key_hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    check_key(key)?;
    stable_hash(key)
}
