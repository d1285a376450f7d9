//! All values of a key in a batch as one, for `stateful_batch`.
//!
//! The values of a key become one list, where the first of them was. In a stream with times their times stay beside it:
//! the step that receives the list divides it where something of the key is due between two values.

use millstream_flow::step::{Context, Step};
use millstream_flow::{Failure, Timed};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::batch::{PyBatch, Times};
use crate::error::cause;
use crate::gil::locked;
use crate::time::TIMELESS;

/// The time of values that are passed as one: the latest of theirs, with the watermark at the first.
pub(crate) fn time_of_all(members: &[Timed<()>]) -> Timed<()> {
    let latest = members.iter().map(|member| member.time).max();
    let first = members.first().copied().unwrap_or(TIMELESS);
    Timed {
        time: latest.unwrap_or(first.time),
        ..first
    }
}

/// Collects the values of each key into lists, with their times.
pub(crate) struct Gather;

fn gather(py: Python<'_>, input: &mut PyBatch) -> PyResult<PyBatch> {
    let Some(keys) = input.take_keys(py) else {
        return Ok(PyBatch::default());
    };
    let values = input.take_values(py);
    let times = input.times.take();
    let places = PyDict::new(py);
    let own = PyList::empty(py);
    let lists = PyList::empty(py);
    let mut members: Vec<Vec<Timed<()>>> = Vec::new();
    for (at, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
        let time = times.as_ref().map(|times| times[at]);
        if let Some(place) = places.get_item(&key)? {
            let place = place.extract::<usize>()?;
            lists.get_item(place)?.cast::<PyList>()?.append(value)?;
            if let Some(known) = members.get_mut(place) {
                known.extend(time);
            }
        } else {
            places.set_item(&key, lists.len())?;
            own.append(key)?;
            lists.append(PyList::new(py, [value])?)?;
            members.extend(time.map(|time| vec![time]));
        }
    }
    let times = times.map(|times| Times {
        stamps: members.iter().map(|members| time_of_all(members)).collect(),
        datetimes: times.datetimes,
        members,
    });
    Ok(PyBatch::keyed(Some(own), lists).at(times))
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
