//! Joins of Python objects: the result is a tuple of two values, of which one may be None.

use std::time::Duration;

use millstream_flow::Failure;
use millstream_flow::join::{Join, JoinKind, Pair};
use millstream_flow::step::{Context, Step};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::batch::PyBatch;

/// A join as Python describes it: partners, which come out alone, and nanoseconds: how much earlier and later partners
/// are, how long a key is kept, lateness and patience of a watermark for each key.
pub(crate) type JoinOptions = (
    String,
    String,
    (u64, u64),
    Option<u64>,
    Option<(u64, Option<u64>)>,
);

/// A join as Python describes it.
pub(crate) fn join((partners, how, (before, after), ttl, per_key): JoinOptions) -> PyResult<Join> {
    let join = match partners.as_str() {
        "latest" => Join::latest(),
        "lookup" => Join::lookup(),
        "within" => Join::between(Duration::from_nanos(before), Duration::from_nanos(after)),
        other => return Err(PyValueError::new_err(format!("no such join: {other}"))),
    };
    let join = match how.as_str() {
        "inner" => join.how(JoinKind::Inner),
        "left" => join.how(JoinKind::Left),
        "full" => join.how(JoinKind::Full),
        other => return Err(PyValueError::new_err(format!("no such join: {other}"))),
    };
    let time = Duration::from_nanos;
    let join = match per_key {
        Some((lateness, patience)) => join.per_key(time(lateness), patience.map(time)),
        None => join,
    };
    Ok(match ttl {
        Some(ttl) => join.ttl(time(ttl)),
        None => join,
    })
}

/// Makes tuples.
pub(crate) struct Tuples;

impl Pair<Py<PyAny>, Py<PyAny>> for Tuples {
    type Out = Py<PyAny>;
    type Error = PyErr;
    fn pair(&self, left: Option<&Py<PyAny>>, right: Option<&Py<PyAny>>) -> PyResult<Py<PyAny>> {
        crate::gil::locked(|py| Ok(PyTuple::new(py, [left, right])?.into_any().unbind()))
    }
}

/// Marks the values of a stream as those of the right one.
pub(crate) struct ToTheRight;

impl Step<PyBatch, PyBatch> for ToTheRight {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        _: &mut Context,
    ) -> Result<(), Failure> {
        *output = std::mem::take(input);
        output.right = true;
        Ok(())
    }
}
