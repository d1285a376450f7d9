//! Saving the states of Python steps. What changed and how an object becomes bytes is known in
//! `millstream/_saving.py`; keys are written here, so that every language reads them.

use millstream_flow::error::Cause;
use millstream_flow::key::{AnyKey, save_bytes, save_integer, save_text, save_tuple, shard};
use millstream_flow::recovery::{Changes, Restore};
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

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
