//! `branch`: a stream divided in two by a predicate.

use millstream_flow::push::Context;
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::Wish;
use crate::step::{Kernel, Shape};

/// A kernel that gives a list of true and false, and the division by it.
pub(crate) struct Divide {
    judge: Kernel,
}

type Lists<'py> = (Vec<Bound<'py, PyAny>>, Vec<Bound<'py, PyAny>>);

impl Divide {
    pub(crate) fn make(
        make: &Py<PyAny>,
        wish: &Wish,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(Divide {
            judge: Kernel::make(make, Shape::Values, wish, making)?,
        })
    }

    /// Divides a batch by what the kernel says of each value.
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
            let Some(verdicts) = self.judge.run(keys.as_ref(), &values, cx)? else {
                return Ok(());
            };
            let parts = split(keys.as_ref(), &values, &verdicts);
            (*yes, *no) = parts.map_err(|error| Failure::new("branch", cause(error)))?;
            Ok(())
        })
    }
}

/// Divides lists by a list of verdicts; a value with the verdict `None` has failed and is gone.
fn split<'py>(
    keys: Option<&Bound<'py, PyList>>,
    values: &Bound<'py, PyList>,
    verdicts: &Bound<'py, PyAny>,
) -> PyResult<(PyBatch, PyBatch)> {
    let py = values.py();
    let verdicts = verdicts.cast::<PyList>()?;
    let mut halves: [Lists<'py>; 2] = Default::default();
    for (at, (value, verdict)) in values.iter().zip(verdicts.iter()).enumerate() {
        if verdict.is_none() {
            continue;
        }
        let half = &mut halves[usize::from(!verdict.is_truthy()?)];
        if let Some(keys) = keys {
            half.0.push(keys.get_item(at)?);
        }
        half.1.push(value);
    }
    let [yes, no] = halves.map(|(half_keys, half_values)| -> PyResult<PyBatch> {
        let half_keys = keys.map(|_| PyList::new(py, half_keys)).transpose()?;
        Ok(PyBatch::keyed(half_keys, PyList::new(py, half_values)?))
    });
    Ok((yes?, no?))
}
