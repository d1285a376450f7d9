//! Sends the items of a keyed stream to the workers of their keys.

use millstream_flow::Failure;
use millstream_flow::key::Shards;
use millstream_flow::{Route, Timed};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::key::stable_hash;

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
