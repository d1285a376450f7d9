//! `branch`: a stream divided in two by a predicate.

use millstream_flow::step::Context;
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::{PyBatch, Times};
use crate::error::cause;
use crate::gil::locked;
use crate::policy::OnErrorOption;
use crate::step::{Kernel, Shape, Tags};

/// A kernel that returns a list of true and false, and the division by it.
pub(crate) struct Divide {
    judge: Kernel,
}

#[derive(Default)]
struct Half<'py> {
    keys: Vec<Bound<'py, PyAny>>,
    values: Vec<Bound<'py, PyAny>>,
    times: Vec<Timed<()>>,
}

impl Divide {
    pub(crate) fn make(
        make: &Py<PyAny>,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(Divide {
            judge: Kernel::make(make, Shape::Values, on_error, making)?,
        })
    }

    /// Divides a batch by the results of the kernel.
    pub(crate) fn apply(
        &mut self,
        input: &mut PyBatch,
        yes: &mut PyBatch,
        no: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        locked(|py| {
            let keys = input.take_keys(py);
            let values = input.take_values(py);
            let times = input.times.take();
            let Some(verdicts) = self.judge.run(&Tags::plain(keys.as_ref()), &values, cx)? else {
                return Ok(());
            };
            let parts = split(keys.as_ref(), &values, times.as_ref(), &verdicts);
            (*yes, *no) = parts.map_err(|error| Failure::new("branch", cause(error)))?;
            Ok(())
        })
    }
}

/// Divides lists by a list of verdicts; a value with the verdict `None` has failed and is dropped.
fn split<'py>(
    keys: Option<&Bound<'py, PyList>>,
    values: &Bound<'py, PyList>,
    times: Option<&Times>,
    verdicts: &Bound<'py, PyAny>,
) -> PyResult<(PyBatch, PyBatch)> {
    let py = values.py();
    let verdicts = verdicts.cast::<PyList>()?;
    let mut halves: [Half<'py>; 2] = Default::default();
    for (at, (value, verdict)) in values.iter().zip(verdicts.iter()).enumerate() {
        if verdict.is_none() {
            continue;
        }
        let half = &mut halves[usize::from(!verdict.is_truthy()?)];
        if let Some(keys) = keys {
            half.keys.push(keys.get_item(at)?);
        }
        half.times.extend(times.map(|times| times[at]));
        half.values.push(value);
    }
    let [yes, no] = halves.map(|half| -> PyResult<PyBatch> {
        let half_keys = keys.map(|_| PyList::new(py, half.keys)).transpose()?;
        let batch = PyBatch::keyed(half_keys, PyList::new(py, half.values)?);
        Ok(batch.at(times.map(|times| times.like(half.times))))
    });
    Ok((yes?, no?))
}
