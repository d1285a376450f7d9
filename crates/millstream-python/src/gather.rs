//! All values of a key in a batch as one, for `stateful_batch`.
//!
//! The values of a key become one list, where the first of them was. Its time is the latest of theirs, and the watermark at
//! it that at the first of them, so that no timer fires before a value that precedes it.

use millstream_flow::step::{Context, Step};
use millstream_flow::{Failure, Timed};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

/// Collects the values of each key into lists. A list has the latest time of its values, and the watermark of the
/// first: what is due by then comes before the list.
pub(crate) struct Gather;

fn gather(py: Python<'_>, input: &mut PyBatch) -> PyResult<PyBatch> {
    let Some(keys) = input.take_keys(py) else {
        return Ok(PyBatch::default());
    };
    let values = input.take_values(py);
    let times = input.times.take();
    let places = PyDict::new(py);
    let (own, lists) = (PyList::empty(py), PyList::empty(py));
    let mut latest: Vec<Timed<()>> = Vec::new();
    for (at, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
        let time = times.as_ref().map(|times| times[at]);
        if let Some(place) = places.get_item(&key)? {
            let place = place.extract::<usize>()?;
            lists.get_item(place)?.cast::<PyList>()?.append(value)?;
            if let (Some(known), Some(time)) = (latest.get_mut(place), time) {
                known.time = known.time.max(time.time);
            }
        } else {
            places.set_item(&key, lists.len())?;
            own.append(key)?;
            lists.append(PyList::new(py, [value])?)?;
            latest.extend(time);
        }
    }
    Ok(PyBatch::keyed(Some(own), lists).at(times.map(|times| times.like(latest))))
}

impl Step<PyBatch, PyBatch> for Gather {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let gathered = locked(|py| gather(py, input));
        *output = gathered.map_err(|error| Failure::new(cx.step_name(), cause(error)))?;
        Ok(())
    }
}
