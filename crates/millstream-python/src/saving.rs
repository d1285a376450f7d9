//! Saving the states of Python steps: keys and plain values as MessagePack, so that every language reads
//! them, any other object in an extension of it whose type says how `millstream/_saving.py` wrote it.

use millstream_flow::error::Cause;
use millstream_flow::key::{AnyKey, save_bytes, save_integer, save_text, save_tuple, shard};
use millstream_flow::recovery::{Changes, Codec, Restore, StateCodec};
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::cause;
use crate::gil::locked;
use crate::route::stable_hash;
use crate::show::show;

/// Writes the keys of a step that have changed.
pub(crate) fn save(keeper: &Py<PyAny>, step: &str, changes: &mut Changes) -> Result<(), Failure> {
    locked(|py| {
        let saved = keeper
            .bind(py)
            .call_method0(intern!(py, "save"))
            .map_err(|error| {
                let key = error.value(py).getattr("__millstream_key__").ok();
                Failure {
                    key: key.map(|key| show(&key)),
                    ..Failure::new(step, cause(error))
                }
            })?;
        let mut put = || {
            for entry in saved.cast::<PyList>()?.iter() {
                let (key, born, tag, state) =
                    entry.extract::<(Bound<'_, PyAny>, u64, u8, Bound<'_, PyBytes>)>()?;
                let mut written = Vec::new();
                save_key(&key, &mut written)?;
                changes.put(
                    shard(stable_hash(&key)?),
                    born,
                    |out| out.extend(&written),
                    |out| {
                        out.extend(state.as_bytes());
                        Ok::<_, PyErr>(tag)
                    },
                )?;
            }
            Ok::<_, PyErr>(())
        };
        put().map_err(|error| Failure::new(step, cause(error)))
    })
}

/// Takes up what was saved of a step; gives what will know what changes.
pub(crate) fn restore(states: &Py<PyAny>, from: &Restore<'_>) -> Result<Py<PyAny>, FlowError> {
    let saved = from.keys()?;
    locked(|py| {
        let keeper = py
            .import("millstream._saving")
            .and_then(|module| module.getattr("Keeper")?.call1((states,)))
            .map_err(|error| from.unsaved(cause(error)))?;
        for entry in &saved {
            let load = || {
                let key = AnyKey::load(&mut &entry.key[..]).ok_or("it is no key")?;
                let key = load_key(py, &key).map_err(cause)?;
                let state = PyBytes::new(py, &entry.state);
                let arguments = (key, entry.tag, state, from.moved());
                let name = intern!(py, "load");
                keeper.call_method1(name, arguments).map_err(cause)?;
                Ok::<_, Cause>(())
            };
            load().map_err(|error| from.unreadable(entry, error))?;
        }
        Ok(keeper.unbind())
    })
}

/// How objects are saved, whatever they are.
pub(crate) fn objects() -> Codec<Py<PyAny>> {
    Codec {
        save: |object, out| locked(|py| save_object(object.bind(py), out)).map_err(cause),
        load: |from| locked(|py| load_object(py, from, None)),
    }
}

/// How states are saved that `make` makes: one that restores itself is made by it first.
pub(crate) struct Made(pub(crate) Py<PyAny>);

impl StateCodec<Py<PyAny>> for Made {
    fn save(&self, state: &Py<PyAny>, out: &mut Vec<u8>) -> Result<(), Cause> {
        locked(|py| save_object(state.bind(py), out)).map_err(cause)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Py<PyAny>, Cause> {
        locked(|py| load_object(py, from, Some(&self.0)))
    }
}

/// Appends an object as one value of MessagePack.
pub(crate) fn save_object(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    static DUMP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // Writing to memory does not fail.
    if object.is_none() {
        let _ = rmp::encode::write_nil(out);
    } else if let Ok(flag) = object.cast_exact::<PyBool>() {
        let _ = rmp::encode::write_bool(out, flag.is_true());
    } else if let Ok(float) = object.cast_exact::<PyFloat>() {
        let _ = rmp::encode::write_f64(out, float.value());
    } else if object.is_exact_instance_of::<PyInt>()
        && let Ok(number) = object.extract::<i64>()
    {
        let _ = rmp::encode::write_sint(out, number);
    } else if let Ok(text) = object.cast_exact::<PyString>()
        && let Ok(text) = text.to_str()
    {
        let _ = rmp::encode::write_str(out, text);
    } else {
        let py = object.py();
        let dump = DUMP.import(py, "millstream._saving", "dump")?;
        let (how, written) = dump
            .call1((object,))?
            .extract::<(u8, Bound<'_, PyBytes>)>()?;
        let written = written.as_bytes();
        let _ = rmp::encode::write_ext_meta(out, written.len() as u32, how as i8);
        out.extend(written);
    }
    Ok(())
}

/// Takes an object off the front.
fn load_object(
    py: Python<'_>,
    from: &mut &[u8],
    make: Option<&Py<PyAny>>,
) -> Result<Py<PyAny>, Cause> {
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    use rmp::Marker;
    let take = |from: &mut &[u8], length: u32| {
        let (taken, rest) = from
            .split_at_checked(length as usize)
            .ok_or("it breaks off")?;
        *from = rest;
        Ok::<_, Cause>(taken.to_vec())
    };
    let first = from.first().ok_or("it breaks off")?;
    let object = match Marker::from_u8(*first) {
        Marker::Null => {
            rmp::decode::read_nil(from)?;
            Ok(py.None().into_bound(py))
        }
        Marker::True | Marker::False => {
            let flag = rmp::decode::read_bool(from)?;
            Ok(PyBool::new(py, flag).to_owned().into_any())
        }
        Marker::F64 => Ok(PyFloat::new(py, rmp::decode::read_f64(from)?).into_any()),
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let length = rmp::decode::read_str_len(from)?;
            let text = String::from_utf8(take(from, length)?)?;
            Ok(PyString::new(py, &text).into_any())
        }
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => {
            let meta = rmp::decode::read_ext_meta(from)?;
            let written = take(from, meta.size)?;
            let read = READ.import(py, "millstream._saving", "read");
            read.and_then(|read| read.call1((meta.typeid, PyBytes::new(py, &written), make)))
        }
        _ => {
            let number: i64 = rmp::decode::read_int(from)?;
            number
                .into_pyobject(py)
                .map(Bound::into_any)
                .map_err(Into::into)
        }
    };
    Ok(object.map_err(cause)?.unbind())
}

/// Appends a key.
pub(crate) fn save_key(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(text) = key.cast::<PyString>() {
        save_text(text.to_str()?, out);
    } else if let Ok(bytes) = key.cast::<PyBytes>() {
        save_bytes(bytes.as_bytes(), out);
    } else if key.is_instance_of::<PyInt>() {
        save_integer(key.extract::<i128>()?, out);
    } else if let Ok(members) = key.cast::<PyTuple>() {
        save_tuple(members.len() as u32, out);
        for member in members.iter() {
            save_key(&member, out)?;
        }
    } else {
        return Err(PyTypeError::new_err(format!("{} is no key", show(key))));
    }
    Ok(())
}

/// A key as Python has it.
pub(crate) fn load_key<'py>(py: Python<'py>, key: &AnyKey) -> PyResult<Bound<'py, PyAny>> {
    Ok(match key {
        AnyKey::Text(text) => PyString::new(py, text).into_any(),
        AnyKey::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        AnyKey::Integer(number) => number.into_pyobject(py)?.into_any(),
        AnyKey::Tuple(members) => {
            let members = members.iter().map(|member| load_key(py, member));
            PyTuple::new(py, members.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
    })
}
