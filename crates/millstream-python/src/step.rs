//! The one step of Python flows: a kernel, which is a Python function that works on whole batches.
//!
//! The kernels are in `millstream/_kernels.py`. They run as ordinary bytecode, because the
//! interpreter calls a Python function from a Python loop faster than from native code: the call is
//! inlined into the frame of the loop. A kernel is handed an *iterator* of the batch. When it raises,
//! what is left in the iterator tells which item it failed on, at no cost for those that do not fail.

use millstream_flow::push::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{Settling, Wish};
use crate::route::check_keys;
use crate::show::{show, type_name};

/// How a kernel is called and what it gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `kernel(values)` gives the new values; the keys stay.
    Values,
    /// `kernel(keys, values)` gives new keys and new values.
    Pairs,
    /// `kernel(values)` gives keys for the values, which stay.
    Keys,
    /// `kernel(list)` gives the new values; the keys stay. The user's own function.
    Batch,
    /// `kernel(keys, values)` gives values without keys.
    Unkey,
}

impl Shape {
    pub(crate) fn read(name: &str) -> PyResult<Self> {
        Ok(match name {
            "values" => Shape::Values,
            "pairs" => Shape::Pairs,
            "keys" => Shape::Keys,
            "batch" => Shape::Batch,
            "unkey" => Shape::Unkey,
            other => return Err(PyValueError::new_err(format!("no such shape: {other}"))),
        })
    }
}

/// A kernel on one worker.
pub(crate) struct Kernel {
    kernel: Py<PyAny>,
    end: Option<Py<PyAny>>,
    shape: Shape,
    policy: Settling,
}

impl Kernel {
    /// Makes the kernel by calling `make`, which gives it, or it and what is to be called at the end.
    pub(crate) fn make(
        make: &Py<PyAny>,
        shape: Shape,
        wish: &Wish,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let policy = wish.open(making)?;
        let made = locked(|py| {
            let made = make.bind(py).call0()?;
            match made.cast::<PyTuple>() {
                Ok(pair) => Ok((pair.get_item(0)?.unbind(), Some(pair.get_item(1)?.unbind()))),
                Err(_) => Ok((made.unbind(), None)),
            }
        });
        let (kernel, end) =
            made.map_err(|error: PyErr| Failure::new(making.info.name.clone(), cause(error)))?;
        Ok(Kernel {
            kernel,
            end,
            shape,
            policy,
        })
    }

    /// Calls the kernel; a failure comes with the position of its item.
    fn call<'py>(
        &self,
        keys: Option<&Bound<'py, PyList>>,
        values: &Bound<'py, PyList>,
        bad: Option<&Bound<'py, PyList>>,
    ) -> Result<Bound<'py, PyAny>, (PyErr, Option<usize>)> {
        let py = values.py();
        let kernel = self.kernel.bind(py);
        if self.shape == Shape::Batch {
            return kernel.call1((values,)).map_err(|error| (error, None));
        }
        let items = values.try_iter().map_err(|error| (error, None))?;
        let result = match (keys, bad, self.shape) {
            (Some(keys), None, Shape::Pairs | Shape::Unkey) => kernel.call1((keys, &items)),
            (Some(keys), Some(bad), Shape::Pairs | Shape::Unkey) => {
                kernel.call1((keys, &items, bad))
            }
            (_, None, _) => kernel.call1((&items,)),
            (_, Some(bad), _) => kernel.call1((&items, bad)),
        };
        result.map_err(|error| (error, position(&items, values.len())))
    }

    /// Puts together what comes out.
    fn emit<'py>(
        &self,
        keys: Option<Bound<'py, PyList>>,
        values: Bound<'py, PyList>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<PyBatch> {
        if matches!(self.shape, Shape::Pairs) || (self.shape == Shape::Keys && self.policy.tolerant)
        {
            let (keys, values) = result.extract::<(Bound<'_, PyList>, Bound<'_, PyList>)>()?;
            return Ok(PyBatch::keyed(Some(keys), values));
        }
        let list = result.cast::<PyList>().map_err(|_| {
            let found = type_name(result);
            PyTypeError::new_err(format!(
                "the function of map_batch gave {found}, not a list"
            ))
        })?;
        match self.shape {
            Shape::Keys => Ok(PyBatch::keyed(Some(list.clone()), values)),
            Shape::Unkey => Ok(PyBatch::of(list.clone())),
            Shape::Batch if list.is_empty() => Ok(PyBatch::default()),
            Shape::Batch if keys.as_ref().is_some_and(|keys| keys.len() != list.len()) => {
                let wanted = keys.map_or(0, |keys| keys.len());
                Err(PyValueError::new_err(format!(
                    "the function of map_batch gave {} values for {wanted} keys",
                    list.len()
                )))
            }
            // The user may have kept the list that came out.
            Shape::Batch => Ok(PyBatch::keyed(keys, list.get_slice(0, list.len()))),
            _ => Ok(PyBatch::keyed(keys, list.clone())),
        }
    }

    fn settle_all(
        &mut self,
        bad: &Bound<'_, PyList>,
        cx: &mut Context,
        py: Python<'_>,
    ) -> Result<(), Failure> {
        for entry in bad.iter() {
            let (key, item, error) = entry
                .extract::<(
                    Option<Bound<'_, PyAny>>,
                    Option<Bound<'_, PyAny>>,
                    Bound<'_, PyAny>,
                )>()
                .map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))?;
            let error = PyErr::from_value(error);
            self.policy
                .settle(key.as_ref(), item.as_ref(), error, cx, py)?;
        }
        Ok(())
    }

    /// Runs the kernel on a batch and settles what failed; `None` when the whole batch did.
    pub(crate) fn run<'py>(
        &mut self,
        keys: Option<&Bound<'py, PyList>>,
        values: &Bound<'py, PyList>,
        cx: &mut Context,
    ) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let py = values.py();
        let bad = (self.policy.tolerant && self.shape != Shape::Batch).then(|| PyList::empty(py));
        let size = values.len();
        let result = self.call(keys, values, bad.as_ref());
        if let Some(bad) = bad.filter(|bad| !bad.is_empty()) {
            self.settle_all(&bad, cx, py)?;
        }
        let (error, at) = match result {
            Ok(result) => return Ok(Some(result)),
            Err(failed) => failed,
        };
        let key = keys.zip(at).and_then(|(keys, at)| keys.get_item(at).ok());
        let item = at.and_then(|at| values.get_item(at).ok());
        let said = match &item {
            Some(item) => show(item),
            None => format!("a batch of {size}"),
        };
        let item = item.as_ref().or(Some(values.as_any()));
        self.policy
            .settle_said(key.as_ref(), item, Some(said), error, cx, py)?;
        Ok(None)
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let keys = input.take_keys(py);
        let values = input.take_values(py);
        let Some(result) = self.run(keys.as_ref(), &values, cx)? else {
            return Ok(PyBatch::default());
        };
        let size = values.len();
        match self.emit(keys, values, &result) {
            Ok(output) if self.shape == Shape::Keys => self.check(py, output, cx),
            Ok(output) => Ok(output),
            Err(error) => {
                let said = Some(format!("a batch of {size}"));
                self.policy
                    .settle_said(None, Some(&result), said, error, cx, py)?;
                Ok(PyBatch::default())
            }
        }
    }

    /// Looks whether each key is one; items without are settled.
    fn check(
        &mut self,
        py: Python<'_>,
        mut output: PyBatch,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let keys = output.take_keys(py).unwrap_or_else(|| PyList::empty(py));
        let values = output.take_values(py);
        let wrong = check_keys(&keys);
        let lost = |error| Failure::new("key_by", cause(error));
        for &at in &wrong {
            let key = keys.get_item(at).map_err(lost)?;
            let item = values.get_item(at).map_err(lost)?;
            let error = PyTypeError::new_err(format!(
                "a key is str, bytes, int or a tuple of them, not {}",
                type_name(&key)
            ));
            self.policy.settle(Some(&key), Some(&item), error, cx, py)?;
        }
        for &at in wrong.iter().rev() {
            keys.del_item(at).map_err(lost)?;
            values.del_item(at).map_err(lost)?;
        }
        Ok(PyBatch::keyed(Some(keys), values))
    }
}

/// The position of the item that an iterator of a list gave last.
fn position(items: &Bound<'_, PyIterator>, length: usize) -> Option<usize> {
    let left = items
        .call_method0("__length_hint__")
        .ok()?
        .extract::<usize>()
        .ok()?;
    (length - left.min(length)).checked_sub(1)
}

impl Step<PyBatch, PyBatch> for Kernel {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        *output = locked(|py| self.work(py, input, cx))?;
        Ok(())
    }

    fn end(&mut self, output: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        if let Some(end) = self.end.take() {
            *output = locked(|py| {
                let bad = PyList::empty(py);
                let wrong = |error| Failure::new(self.policy.step.clone(), cause(error));
                let result = end.bind(py).call1((&bad,)).map_err(wrong)?;
                self.settle_all(&bad, cx, py)?;
                let wrong = |error| Failure::new(self.policy.step.clone(), cause(error));
                let (keys, values) = result
                    .extract::<(Bound<'_, PyList>, Bound<'_, PyList>)>()
                    .map_err(wrong)?;
                Ok(PyBatch::keyed(Some(keys), values))
            })?;
        }
        self.policy.close(cx)
    }
}
