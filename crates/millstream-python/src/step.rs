//! The one step of Python flows: a kernel, which is a Python function that works on whole batches.
//!
//! The kernels are in `millstream/_streams/kernels.py`. They run as ordinary bytecode, because the
//! interpreter calls a Python function from a Python loop faster than from native code: the call is
//! inlined into the frame of the loop. A kernel receives an *iterator* of the batch. When it raises,
//! the rest of the iterator tells which item it failed on, at no cost for other items.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_flow::checkpoint::{Changes, Restore};
use millstream_flow::step::{Context, StateSize, Stateful, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};

use crate::batch::{PyBatch, Times};
use crate::clock::RunClock;
use crate::error::cause;
use crate::gil::locked;
use crate::kernel_states::KernelStates;
use crate::key::check_key;
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::show::{show, type_name};

/// How a kernel is called, and its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `kernel(values)` returns the new values; the keys stay.
    Values,
    /// `kernel(keys, values)` returns new keys and new values. Keeps state, and drops times.
    Pairs,
    /// The same of a kernel that emits only at the end of all input.
    AtEnd,
    /// `kernel(tags, values)` returns any number of values for each, and the tag of each. Tags are keys,
    /// or positions where there are times, so that keys and times can be found again.
    Produce,
    /// `kernel(values)` returns keys for the values, which stay.
    Keys,
    /// `kernel(list)` returns the new values; the keys stay. The user's own function.
    Batch,
    /// `kernel(keys, values)` returns values without keys.
    Unkey,
}

impl Shape {
    pub(crate) fn read(name: &str) -> PyResult<Self> {
        Ok(match name {
            "values" => Shape::Values,
            "pairs" => Shape::Pairs,
            "at end" => Shape::AtEnd,
            "produce" => Shape::Produce,
            "keys" => Shape::Keys,
            "batch" => Shape::Batch,
            "unkey" => Shape::Unkey,
            other => return Err(PyValueError::new_err(format!("no such shape: {other}"))),
        })
    }
}

/// The first argument of a kernel, beside the values.
pub(crate) struct Tags<'a, 'py> {
    /// The arguments of the kernel.
    tags: Option<&'a Bound<'py, PyList>>,
    /// The keys, for errors.
    keys: Option<&'a Bound<'py, PyList>>,
    /// True when the tags are positions.
    positions: bool,
}

impl<'a, 'py> Tags<'a, 'py> {
    /// Keys, or nothing.
    pub(crate) fn plain(keys: Option<&'a Bound<'py, PyList>>) -> Self {
        Tags {
            tags: keys,
            keys,
            positions: false,
        }
    }

    /// The key of a tag.
    fn key_of(&self, tag: Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        if !self.positions {
            return Some(tag);
        }
        self.keys?.get_item(tag.extract::<usize>().ok()?).ok()
    }
}

/// A kernel on one worker.
pub(crate) struct Kernel {
    kernel: Py<PyAny>,
    end: Option<Py<PyAny>>,
    /// The states by key, of a kernel that keeps them.
    states: Option<Py<PyAny>>,
    /// Tracks which of them have changed, in a run with recovery.
    tracked: Option<KernelStates>,
    shape: Shape,
    /// When to log that results come at the end: some time after the first values, of one that emits then.
    says_at: Option<i64>,
    /// Whether a worker has logged it.
    said: Arc<AtomicBool>,
    pub(crate) policy: ErrorHandler,
}

/// For how long values arrive before a step that emits at the end says so.
const SAYS_AFTER_NS: i64 = 10_000_000_000;

impl Kernel {
    /// Makes the kernel by calling `make`, which returns it, or it, the function to call at the end, and the
    /// states that it keeps.
    pub(crate) fn make(
        make: &Py<PyAny>,
        shape: Shape,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Self::made_by(|py| make.bind(py).call0(), shape, on_error, making)
    }

    /// The same, with a `make` that is called with the clock of the run.
    pub(crate) fn make_by_clock(
        make: &Py<PyAny>,
        shape: Shape,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let clock = RunClock(Arc::clone(&making.clock));
        Self::made_by(|py| make.bind(py).call1((clock,)), shape, on_error, making)
    }

    fn made_by(
        make: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
        shape: Shape,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let policy = on_error.open(making)?;
        let made = locked(|py| {
            let made = make(py)?;
            match made.cast::<PyTuple>() {
                Ok(parts) => parts.extract::<(Py<PyAny>, Option<Py<PyAny>>, Option<Py<PyAny>>)>(),
                Err(_) => Ok((made.unbind(), None, None)),
            }
        });
        let (kernel, end, states) =
            made.map_err(|error: PyErr| Failure::new(making.info.name.clone(), cause(error)))?;
        Ok(Kernel {
            kernel,
            end,
            states,
            tracked: None,
            shape,
            says_at: None,
            said: Arc::default(),
            policy,
        })
    }

    /// The same, with the note whether one of its workers has logged that.
    pub(crate) fn saying(self, said: Arc<AtomicBool>) -> Self {
        Kernel { said, ..self }
    }

    /// Logs once that the results come at the end of all input, if that has not come for some time.
    fn say_at_end(&mut self, cx: &mut Context) {
        let at = *self
            .says_at
            .get_or_insert(cx.now().saturating_add(SAYS_AFTER_NS));
        if at == i64::MAX {
            return;
        }
        if cx.now() < at {
            cx.wake_at(at);
            return;
        }
        self.says_at = Some(i64::MAX);
        let step = &self.policy.step;
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::info!(
                target: "millstream_flow::step",
                step = step.as_str(),
                "step \"{step}\": it emits its results when all input has ended, and items have come for {} s; for results \
                 before that, use emit=\"each\" or a window",
                SAYS_AFTER_NS / 1_000_000_000
            );
        }
    }

    /// Calls the kernel; a failure comes with the position of its item.
    fn call<'py>(
        &self,
        given: &Tags<'_, 'py>,
        values: &Bound<'py, PyList>,
        bad: Option<&Bound<'py, PyList>>,
    ) -> Result<Bound<'py, PyAny>, (PyErr, Option<usize>)> {
        let py = values.py();
        let kernel = self.kernel.bind(py);
        if self.shape == Shape::Batch {
            return kernel.call1((values,)).map_err(|error| (error, None));
        }
        let items = values.try_iter().map_err(|error| (error, None))?;
        let two_lists = matches!(
            self.shape,
            Shape::Pairs | Shape::AtEnd | Shape::Produce | Shape::Unkey
        );
        let result = match (given.tags.filter(|_| two_lists), bad) {
            (Some(tags), None) => kernel.call1((tags, &items)),
            (Some(tags), Some(bad)) => kernel.call1((tags, &items, bad)),
            (_, None) => kernel.call1((&items,)),
            (_, Some(bad)) => kernel.call1((&items, bad)),
        };
        result.map_err(|error| (error, position(&items, values.len())))
    }

    /// Assembles the output.
    fn emit<'py>(
        &self,
        keys: Option<Bound<'py, PyList>>,
        values: Bound<'py, PyList>,
        times: Option<Times>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<PyBatch> {
        if matches!(self.shape, Shape::Pairs | Shape::AtEnd | Shape::Produce) {
            let (tags, values) = result.extract::<(Bound<'_, PyList>, Bound<'_, PyList>)>()?;
            return match times.filter(|_| self.shape == Shape::Produce) {
                Some(times) => restore(&tags, keys.as_ref(), &times, values),
                None => Ok(PyBatch::keyed(Some(tags), values)),
            };
        }
        let list = result.cast::<PyList>().map_err(|_| {
            let found = type_name(result);
            PyTypeError::new_err(format!(
                "the function of map_batch gave {found}, not a list"
            ))
        })?;
        let wanted = keys.as_ref().map(|keys| keys.len());
        let wanted = wanted.or(times.as_ref().map(|times| times.len()));
        match self.shape {
            Shape::Keys => Ok(PyBatch::keyed(Some(list.clone()), values).at(times)),
            Shape::Unkey => Ok(PyBatch::of(list.clone()).at(times)),
            Shape::Batch if list.is_empty() => Ok(PyBatch::default()),
            Shape::Batch if wanted.is_some_and(|wanted| wanted != list.len()) => {
                let what = if keys.is_some() { "keys" } else { "times" };
                Err(PyValueError::new_err(format!(
                    "the function of map_batch gave {} values for {} {what}",
                    list.len(),
                    wanted.unwrap_or(0),
                )))
            }
            // The user may hold the list that was returned.
            Shape::Batch => Ok(PyBatch::keyed(keys, list.get_slice(0, list.len())).at(times)),
            _ => Ok(PyBatch::keyed(keys, list.clone()).at(times)),
        }
    }

    fn handle_all<'py>(
        &mut self,
        bad: &Bound<'py, PyList>,
        given: &Tags<'_, 'py>,
        cx: &mut Context,
        py: Python<'py>,
    ) -> Result<(), Failure> {
        for entry in bad.iter() {
            let (tag, item, error) = entry
                .extract::<(
                    Option<Bound<'_, PyAny>>,
                    Option<Bound<'_, PyAny>>,
                    Bound<'_, PyAny>,
                )>()
                .map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))?;
            let key = tag.and_then(|tag| given.key_of(tag));
            let error = PyErr::from_value(error);
            self.policy
                .handle(key.as_ref(), item.as_ref(), error, cx, py)?;
        }
        Ok(())
    }

    /// Runs the kernel on a batch and handles failures; `None` when the whole batch did.
    pub(crate) fn run<'py>(
        &mut self,
        given: &Tags<'_, 'py>,
        values: &Bound<'py, PyList>,
        cx: &mut Context,
    ) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let py = values.py();
        let bad = (self.policy.tolerant && self.shape != Shape::Batch).then(|| PyList::empty(py));
        let size = values.len();
        let result = self.call(given, values, bad.as_ref());
        if let Some(bad) = bad.filter(|bad| !bad.is_empty()) {
            self.handle_all(&bad, given, cx, py)?;
        }
        let (error, at) = match result {
            Ok(result) => return Ok(Some(result)),
            Err(failed) => failed,
        };
        let key = given
            .keys
            .zip(at)
            .and_then(|(keys, at)| keys.get_item(at).ok());
        let item = at.and_then(|at| values.get_item(at).ok());
        let said = match &item {
            Some(item) => show(item),
            None => format!("a batch of {size}"),
        };
        let item = item.as_ref().or(Some(values.as_any()));
        self.policy
            .handle_described(key.as_ref(), item, Some(said), error, cx, py)?;
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
        let times = input.times.take();
        let wrong = |error| Failure::new(cx.step_name(), cause(error));
        let positions = match &times {
            Some(times) if self.shape == Shape::Produce => {
                Some(PyList::new(py, 0..times.len()).map_err(wrong)?)
            }
            _ => None,
        };
        let given = Tags {
            tags: positions.as_ref().or(keys.as_ref()),
            keys: keys.as_ref(),
            positions: positions.is_some(),
        };
        let Some(result) = self.run(&given, &values, cx)? else {
            return Ok(PyBatch::default());
        };
        let size = values.len();
        match self.emit(keys, values, times, &result) {
            Ok(output) if self.shape == Shape::Keys => self.check(py, output, cx),
            Ok(output) => Ok(output),
            Err(error) => {
                let said = Some(format!("a batch of {size}"));
                self.policy
                    .handle_described(None, Some(&result), said, error, cx, py)?;
                Ok(PyBatch::default())
            }
        }
    }

    /// Checks that each key is valid; items without one are handled as failures.
    fn check(
        &mut self,
        py: Python<'_>,
        mut output: PyBatch,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let keys = output.take_keys(py).unwrap_or_else(|| PyList::empty(py));
        let values = output.take_values(py);
        let mut times = output.times.take();
        let lost = |error| Failure::new("key_by", cause(error));
        let mut wrong = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let Err(no_key) = check_key(&key) else {
                continue;
            };
            wrong.push(at);
            if !is_failed(&key) {
                let item = values.get_item(at).map_err(lost)?;
                self.policy
                    .handle(Some(&key), Some(&item), no_key.into(), cx, py)?;
            }
        }
        for &at in wrong.iter().rev() {
            keys.del_item(at).map_err(lost)?;
            values.del_item(at).map_err(lost)?;
            if let Some(times) = &mut times {
                times.stamps.remove(at);
            }
        }
        Ok(PyBatch::keyed(Some(keys), values).at(times))
    }
}

/// True for the placeholder of a tolerant kernel where a function has failed, which is handled already.
pub(crate) fn is_failed(object: &Bound<'_, PyAny>) -> bool {
    static FAILED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let failed = FAILED.import(object.py(), "millstream._streams.kernels", "FAILED");
    failed.is_ok_and(|failed| object.is(failed))
}

/// Finds keys and times by the positions in the output.
fn restore<'py>(
    positions: &Bound<'py, PyList>,
    keys: Option<&Bound<'py, PyList>>,
    times: &Times,
    values: Bound<'py, PyList>,
) -> PyResult<PyBatch> {
    let mut kept = Vec::with_capacity(positions.len());
    let mut own = Vec::with_capacity(positions.len());
    for position in positions.iter() {
        let position = position.extract::<usize>()?;
        kept.push(times[position]);
        if let Some(keys) = keys {
            own.push(keys.get_item(position)?);
        }
    }
    let own = keys.map(|_| PyList::new(values.py(), own)).transpose()?;
    Ok(PyBatch::keyed(own, values).at(Some(times.like(kept))))
}

/// The position of the item that an iterator of a list returned last.
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
        if self.shape == Shape::AtEnd && self.says_at.is_none() {
            self.say_at_end(cx);
        }
        *output = locked(|py| {
            if let (Some(tracked), Some(keys)) = (&mut self.tracked, &input.keys) {
                let touched = tracked.touch(py, keys);
                touched.map_err(|error| Failure::new(cx.step_name(), cause(error)))?;
            }
            self.work(py, input, cx)
        })?;
        Ok(())
    }

    fn keeps_time(&self) -> bool {
        self.shape == Shape::AtEnd
    }
    fn tick(&mut self, _: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        if self.says_at.is_some() {
            self.say_at_end(cx);
        }
        Ok(())
    }
    fn end(&mut self, output: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        if let Some(end) = self.end.take() {
            *output = locked(|py| {
                let bad = PyList::empty(py);
                let wrong = |error| Failure::new(self.policy.step.clone(), cause(error));
                let result = end.bind(py).call1((&bad,)).map_err(wrong)?;
                self.handle_all(&bad, &Tags::plain(None), cx, py)?;
                let wrong = |error| Failure::new(self.policy.step.clone(), cause(error));
                let (keys, values) = result
                    .extract::<(Bound<'_, PyList>, Bound<'_, PyList>)>()
                    .map_err(wrong)?;
                Ok(PyBatch::keyed(Some(keys), values))
            })?;
        }
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for Kernel {
    fn size(&self) -> Option<StateSize> {
        let states = self.states.as_ref()?;
        let keys = locked(|py| Some(states.bind(py).cast::<PyDict>().ok()?.len()))?;
        Some(StateSize {
            keys: keys as u64,
            bytes: None,
            waits_for_time: false,
        })
    }
    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure> {
        match &mut self.tracked {
            Some(tracked) => tracked.save(&self.policy.step, changes, cx),
            None => Ok(()),
        }
    }
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        if let Some(states) = &self.states {
            self.tracked = Some(KernelStates::restore(states, from)?);
        }
        Ok(())
    }
}
