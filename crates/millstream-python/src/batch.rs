//! The batches between the steps of a Python flow: a list of values and, after `key_by`, a list of
//! keys of the same length beside it, so that no pair is made for an item. After `event_time` each
//! value has its time beside it too, as plain numbers.
//!
//! Invariant: a batch is the only owner of its lists, and one worker at a time has the batch, so that no two threads use
//! a list. A step may hand its list to the user's code.

mod codec;
mod engine;

use std::ops::Deref;

use millstream_flow::Timed;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::gil::locked;

/// The times of the values of a batch.
#[derive(Clone, Default)]
pub(crate) struct Times {
    pub(crate) stamps: Vec<Timed<()>>,
    /// True for times from datetimes: the windows of these values then begin and end with datetimes.
    pub(crate) datetimes: bool,
    /// The times of the members of each value, where values are lists of a key's values; else empty.
    pub(crate) members: Vec<Vec<Timed<()>>>,
}

impl Times {
    /// Times of the same kind.
    pub(crate) fn like(&self, stamps: Vec<Timed<()>>) -> Self {
        Times {
            stamps,
            datetimes: self.datetimes,
            members: Vec::new(),
        }
    }
}

impl Deref for Times {
    type Target = Vec<Timed<()>>;
    fn deref(&self) -> &Self::Target {
        &self.stamps
    }
}

/// A group of Python objects.
#[derive(Default)]
pub(crate) struct PyBatch {
    pub(crate) keys: Option<Py<PyList>>,
    pub(crate) values: Option<Py<PyList>>,
    /// The times of the values, as many as there are; none in a stream without times.
    pub(crate) times: Option<Times>,
    /// True for values of the right stream of a join.
    pub(crate) right: bool,
    len: usize,
}

impl PyBatch {
    /// A batch of these values, without keys.
    pub(crate) fn of(values: Bound<'_, PyList>) -> Self {
        PyBatch {
            len: values.len(),
            keys: None,
            values: Some(values.unbind()),
            times: None,
            right: false,
        }
    }

    /// A batch of these keys and values, which have the same number.
    pub(crate) fn keyed(keys: Option<Bound<'_, PyList>>, values: Bound<'_, PyList>) -> Self {
        PyBatch {
            keys: keys.map(Bound::unbind),
            ..PyBatch::of(values)
        }
    }

    /// The same with times, as many as there are values.
    pub(crate) fn at(self, times: Option<Times>) -> Self {
        PyBatch { times, ..self }
    }

    /// Takes the keys out.
    pub(crate) fn take_keys<'py>(&mut self, py: Python<'py>) -> Option<Bound<'py, PyList>> {
        self.keys.take().map(|keys| keys.into_bound(py))
    }

    /// Takes the values out; a list of its own when there is none.
    pub(crate) fn take_values<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyList> {
        self.len = 0;
        match self.values.take() {
            Some(values) => values.into_bound(py),
            None => PyList::empty(py),
        }
    }
}

impl Clone for PyBatch {
    fn clone(&self) -> Self {
        locked(|py| {
            let copy = |list: &Option<Py<PyList>>| {
                let list = list.as_ref()?.bind(py);
                Some(list.get_slice(0, list.len()).unbind())
            };
            PyBatch {
                keys: copy(&self.keys),
                values: copy(&self.values),
                times: self.times.clone(),
                right: self.right,
                len: self.len,
            }
        })
    }
}
