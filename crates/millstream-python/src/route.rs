//! Keys: which objects can be one, and to which worker each belongs.
//!
//! A key is a `str`, `bytes`, `int` (a `bool` counts as one) or a tuple of them, hashed as in Rust
//! (`millstream_flow::key`), so that all processes and both languages agree on its worker.

use millstream_flow::Failure;
use millstream_flow::key::{Shards, hash_bytes, hash_integer, hash_text, hash_tuple};
use millstream_flow::{Route, Timed};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::show::type_name;

/// The positions of the keys that cannot be one.
pub(crate) fn check_keys(keys: &Bound<'_, PyList>) -> Vec<usize> {
    keys.iter()
        .enumerate()
        .filter_map(|(at, key)| (!can_be_key(&key)).then_some(at))
        .collect()
}

fn can_be_key(key: &Bound<'_, PyAny>) -> bool {
    key.is_exact_instance_of::<PyString>()
        || key.is_exact_instance_of::<PyBytes>()
        || key.is_exact_instance_of::<PyInt>()
        || key.is_instance_of::<PyString>()
        || key.is_instance_of::<PyBytes>()
        || key.is_instance_of::<PyInt>()
        || key
            .cast::<PyTuple>()
            .is_ok_and(|members| members.iter().all(|member| can_be_key(&member)))
}

/// The stable hash of a key.
pub(crate) fn stable_hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = key.cast::<PyString>() {
        return match text.to_str() {
            Ok(text) => Ok(hash_text(text.as_bytes())),
            // Lone surrogates have no UTF-8; each counts as the three bytes that its number would have.
            Err(_) => {
                let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
                Ok(hash_text(bytes.cast::<PyBytes>()?.as_bytes()))
            }
        };
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(hash_bytes(bytes.as_bytes()));
    }
    if key.is_instance_of::<PyInt>() {
        if let Ok(narrow) = key.extract::<i64>() {
            return Ok(hash_integer(&narrow.to_le_bytes()));
        }
        return wide_hash(key);
    }
    if let Ok(members) = key.cast::<PyTuple>() {
        let hashes = members
            .iter()
            .map(|member| stable_hash(&member))
            .collect::<PyResult<Vec<_>>>()?;
        return Ok(hash_tuple(&hashes));
    }
    let found = type_name(key);
    Err(PyTypeError::new_err(format!(
        "a key is str, bytes, int or a tuple of them, not {found}"
    )))
}

/// The hash of an integer of more than 64 bits: the least multiple of 8 bytes that holds it.
fn wide_hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = key.py();
    let magnitude = if key.lt(0)? {
        key.call_method0("__invert__")?
    } else {
        key.clone()
    };
    let bits = magnitude.call_method0("bit_length")?.extract::<usize>()? + 1;
    let bytes = bits.div_ceil(64) * 8;
    let signed = pyo3::types::PyDict::new(py);
    signed.set_item("signed", true)?;
    let raw = key.call_method("to_bytes", (bytes, "little"), Some(&signed))?;
    Ok(hash_integer(raw.cast::<PyBytes>()?.as_bytes()))
}

/// Sends each item to the worker of its key.
pub(crate) struct ByKey;

impl Route<PyBatch> for ByKey {
    fn route(
        &mut self,
        batch: &mut PyBatch,
        parts: &mut [PyBatch],
        shards: Shards,
    ) -> Result<(), Failure> {
        locked(|py| divide(py, batch, parts, shards))
            .map_err(|error| Failure::new("exchange", cause(error)))
    }
}

fn divide(
    py: Python<'_>,
    batch: &mut PyBatch,
    parts: &mut [PyBatch],
    shards: Shards,
) -> PyResult<()> {
    let keys = batch.take_keys(py).unwrap_or_else(|| PyList::empty(py));
    let values = batch.take_values(py);
    let times = batch.times.take();
    let stamped = times.as_ref().map_or(keys.len(), |times| times.len());
    let counts = [keys.len(), stamped];
    if counts != [values.len(); 2] {
        return Err(PyRuntimeError::new_err(format!(
            "a batch of {} values has {} keys and {} times",
            values.len(),
            counts[0],
            counts[1]
        )));
    }
    let workers = parts.len();
    let mut lists: Vec<[Vec<Bound<'_, PyAny>>; 2]> = Vec::new();
    lists.resize_with(workers, Default::default);
    let mut split_times: Vec<Vec<Timed<()>>> = vec![Vec::new(); workers];
    for (at, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
        let to = shards.worker(stable_hash(&key)?, workers);
        lists[to][0].push(key);
        lists[to][1].push(value);
        split_times[to].extend(times.as_ref().map(|times| times[at]));
    }
    for ((part, [keys, values]), part_times) in parts.iter_mut().zip(lists).zip(split_times) {
        if !keys.is_empty() {
            let lists = PyBatch::keyed(Some(PyList::new(py, keys)?), PyList::new(py, values)?);
            *part = lists.at(times.as_ref().map(|times| times.like(part_times)));
            part.right = batch.right;
        }
    }
    Ok(())
}

/// The stable hash of a key, as the engine sees it.
#[pyfunction]
pub(crate) fn key_hash(key: &Bound<'_, PyAny>) -> PyResult<u64> {
    stable_hash(key)
}
