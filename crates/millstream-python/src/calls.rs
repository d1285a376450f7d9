//! Steps written in Python that use processing time: `map_async`.
//!
//! The step is an object (`millstream/_streams/async_calls.py`) with `take(keys, values, now)`, `tick(now)` and
//! `end()`. Each returns keys (or None) and values to send on; after each the object's `wake` is the time at which
//! the next tick is due, in seconds of processing time, and `bad` holds its failures. `close()`
//! is called when the flow is over, however it ended.
//!
//! Values that it has taken and not returned yet are its state: `waiting()` returns pairs of key and value, `take_up`
//! takes them back. They are saved under a key of the worker's own, so that they find another worker
//! where there are fewer.

use std::sync::Arc;

use millstream_flow::checkpoint::{Changes, PerWorker, Restore, pack};
use millstream_flow::error::Cause;
use millstream_flow::step::{Context, Stateful, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyList, PyTuple};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::saving::{objects, save_object};
use crate::show::show;
use crate::time::{seconds, to_nanos};

type Lists<'py> = (Option<Bound<'py, PyList>>, Bound<'py, PyList>);
type Bad<'py> = (
    Option<Bound<'py, PyAny>>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
);

/// Such an object on one worker.
pub(crate) struct AsyncCalls {
    object: Py<PyAny>,
    /// Whether the object knows when calls are not waited for any longer.
    is_bound: bool,
    policy: ErrorHandler,
    saved: PerWorker,
}

impl AsyncCalls {
    pub(crate) fn make(
        make: &Py<PyAny>,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let policy = on_error.open(making)?;
        let object = locked(|py| make.bind(py).call0().map(Bound::unbind));
        let object =
            object.map_err(|error| Failure::new(making.info.name.clone(), cause(error)))?;
        Ok(AsyncCalls {
            object,
            is_bound: false,
            policy,
            saved: PerWorker::new(making.worker, making.shards),
        })
    }

    /// The object, which learns from `leaves(calls)` whether it waits for calls no longer.
    fn object<'py>(&mut self, py: Python<'py>, cx: &Context) -> Result<Bound<'py, PyAny>, Failure> {
        let object = self.object.bind(py).clone();
        if !self.is_bound {
            let wrong = |error| Failure::new(cx.step_name(), cause(error));
            let (control, step) = (Arc::clone(&cx.control), cx.step_name());
            let leaves = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
                let calls = args.get_item(0)?.extract()?;
                PyResult::Ok(control.leaves_calls(&step, calls))
            };
            let leaves = PyCFunction::new_closure(py, None, None, leaves).map_err(wrong)?;
            object
                .setattr(intern!(py, "leaves"), leaves)
                .map_err(wrong)?;
            self.is_bound = true;
        }
        Ok(object)
    }

    /// Sends on the results of a call, handles failures, and asks for the next tick.
    fn send_on<'py>(
        &mut self,
        py: Python<'py>,
        made: PyResult<Bound<'py, PyAny>>,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let step = self.policy.step.clone();
        let wrong = |error| Failure::new(step.clone(), cause(error));
        let object = self.object.bind(py).clone();
        let bad = object.getattr(intern!(py, "bad")).map_err(wrong)?;
        let bad: Vec<Bad<'_>> = bad.extract().map_err(wrong)?;
        if !bad.is_empty() {
            object.setattr("bad", PyList::empty(py)).map_err(wrong)?;
        }
        for (key, item, error) in bad {
            let error = PyErr::from_value(error);
            self.policy
                .handle(key.as_ref(), Some(&item), error, cx, py)?;
        }
        let (keys, values): Lists<'_> = made.and_then(|made| made.extract()).map_err(wrong)?;
        *output = PyBatch::keyed(keys, values);
        let wake = object.getattr(intern!(py, "wake")).map_err(wrong)?;
        if !wake.is_none() {
            cx.wake_at(to_nanos(&wake).map_err(wrong)?);
        }
        Ok(())
    }
}

impl AsyncCalls {
    /// The values taken and not returned: a list of pairs; `None` without any.
    fn waiting(&self, py: Python<'_>) -> Result<Option<Vec<u8>>, Failure> {
        let wrong = |error| Failure::new(self.policy.step.clone(), cause(error));
        let waiting = self.object.bind(py).call_method0(intern!(py, "waiting"));
        let waiting: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)> = waiting
            .and_then(|waiting| waiting.extract())
            .map_err(wrong)?;
        if waiting.is_empty() {
            return Ok(None);
        }
        let mut out = Vec::new();
        pack::list(waiting.len(), &mut out);
        for (key, value) in waiting {
            pack::list(2, &mut out);
            let saved = save_object(&key, &mut out).and_then(|()| save_object(&value, &mut out));
            saved.map_err(|error| Failure {
                key: (!key.is_none()).then(|| show(&key)),
                item: Some(show(&value)),
                ..wrong(error)
            })?;
        }
        Ok(Some(out))
    }
}

fn take_up(object: &Bound<'_, PyAny>, from: &mut &[u8]) -> Result<(), Cause> {
    let load = objects().load;
    let mut waiting = Vec::new();
    for _ in 0..pack::take_list(from)? {
        pack::take_members(2, from)?;
        waiting.push((load(from)?, load(from)?));
    }
    let taken = object.call_method1("take_up", (waiting,));
    taken.map(drop).map_err(cause)
}

impl Drop for AsyncCalls {
    fn drop(&mut self) {
        locked(|py| {
            if let Err(error) = self.object.bind(py).call_method0("close") {
                error.write_unraisable(py, Some(self.object.bind(py)));
            }
        });
    }
}

impl Step<PyBatch, PyBatch> for AsyncCalls {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        locked(|py| {
            let keys = input.take_keys(py);
            let values = input.take_values(py);
            let object = self.object(py, cx)?;
            let made = object.call_method1(intern!(py, "take"), (keys, values, seconds(cx.now())));
            self.send_on(py, made, output, cx)
        })
    }
    fn keeps_time(&self) -> bool {
        true
    }
    fn drain(&mut self, output: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            let made = self.object(py, cx)?.call_method0("end");
            self.send_on(py, made, output, cx)
        })
    }
    fn tick(&mut self, output: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            let object = self.object(py, cx)?;
            let made = object.call_method1(intern!(py, "tick"), (seconds(cx.now()),));
            self.send_on(py, made, output, cx)
        })
    }
    fn end(&mut self, output: &mut PyBatch, cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            let made = self.object(py, cx)?.call_method0("end");
            self.send_on(py, made, output, cx)
        })
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl Stateful for AsyncCalls {
    fn save(&mut self, changes: &mut Changes, _: &mut Context) -> Result<(), Failure> {
        let state = locked(|py| self.waiting(py))?;
        let saved = self.saved.save(state, changes);
        saved.map_err(|error| Failure::new(self.policy.step.clone(), error))
    }
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let object = &self.object;
        self.saved
            .restore(from, |state| locked(|py| take_up(object.bind(py), state)))
    }
}
