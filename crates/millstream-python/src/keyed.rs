//! State for each key that knows time, on Python objects: the engine's table of keys, with Python
//! objects as keys and values.

use std::fmt;
use std::hash::{Hash, Hasher};

use millstream_flow::batch::Batch;
use millstream_flow::join::Side;
use millstream_flow::push::{Context, Step};
use millstream_flow::recovery::Restore;
use millstream_flow::state::UNSAVED;
use millstream_flow::state::{KeyLogic, Keyed, Outputs};
use millstream_flow::stream::Making;
use millstream_flow::time::BEFORE_ALL;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{Settling, Wish};
use crate::show::show;
use crate::time::TIMELESS;

/// A key; its hash is that of the interpreter.
pub(crate) struct PyKey {
    object: Py<PyAny>,
    hash: isize,
}

impl PyKey {
    pub(crate) fn of(object: Bound<'_, PyAny>) -> PyResult<Self> {
        let hash = object.hash()?;
        Ok(PyKey {
            object: object.unbind(),
            hash,
        })
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.object.bind(py)
    }
}

impl Clone for PyKey {
    fn clone(&self) -> Self {
        PyKey {
            object: locked(|py| self.object.clone_ref(py)),
            hash: self.hash,
        }
    }
}

impl PartialEq for PyKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && (self.object.is(&other.object)
                // A comparison of text, bytes, integers or tuples of them does not fail.
                || locked(|py| self.bind(py).eq(other.bind(py)).unwrap_or(false)))
    }
}

impl Eq for PyKey {}

impl Hash for PyKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_isize(self.hash);
    }
}

impl fmt::Debug for PyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        locked(|py| f.write_str(&show(self.bind(py))))
    }
}

/// What a value is to the logic of a step: the object, or the object and its side of a join.
pub(crate) trait Item: Sized {
    fn of(value: Py<PyAny>, right: bool) -> Self;
    fn object(self) -> Py<PyAny>;
}

impl Item for Py<PyAny> {
    fn of(value: Py<PyAny>, _: bool) -> Self {
        value
    }
    fn object(self) -> Py<PyAny> {
        self
    }
}

impl Item for Side<Py<PyAny>, Py<PyAny>> {
    fn of(value: Py<PyAny>, right: bool) -> Self {
        if right {
            Side::Right(value)
        } else {
            Side::Left(value)
        }
    }
    fn object(self) -> Py<PyAny> {
        match self {
            Side::Left(value) | Side::Right(value) => value,
        }
    }
}

/// Lists of keys, values and times in the making.
#[derive(Default)]
struct Lists {
    keys: Vec<Py<PyAny>>,
    values: Vec<Py<PyAny>>,
    times: Vec<Timed<()>>,
}

impl Lists {
    fn push<'py>(&mut self, key: &PyKey, item: Timed<Py<PyAny>>, py: Python<'py>) {
        self.keys.push(key.object.clone_ref(py));
        self.times.push(Timed {
            time: item.time,
            watermark: item.watermark,
            value: (),
        });
        self.values.push(item.value);
    }

    fn batch(&mut self, py: Python<'_>, timed: bool) -> PyResult<PyBatch> {
        if self.keys.is_empty() {
            return Ok(PyBatch::default());
        }
        let keys = PyList::new(py, self.keys.drain(..))?;
        let values = PyList::new(py, self.values.drain(..))?;
        let times = std::mem::take(&mut self.times);
        Ok(PyBatch::keyed(Some(keys), values).at(timed.then_some(times)))
    }
}

/// What came out in one call of the engine.
struct Out<'a, 'py> {
    py: Python<'py>,
    results: &'a mut Lists,
    late: &'a mut Lists,
}

impl<I: Item> Outputs<PyKey, Py<PyAny>, I> for Out<'_, '_> {
    fn result(&mut self, key: &PyKey, output: Timed<Py<PyAny>>) {
        self.results.push(key, output, self.py);
    }
    fn late(&mut self, key: &PyKey, item: Timed<I>) {
        self.late.push(key, item.map(I::object), self.py);
    }
}

/// A step with a state for each key. Its outputs are results and what came late.
pub(crate) struct PyKeyed<L: KeyLogic<PyKey>> {
    keyed: Keyed<PyKey, L>,
    policy: Settling,
    results: Lists,
    late: Lists,
    /// True when keys may wait for moments in processing time.
    waits: bool,
    /// True when outputs have times.
    timed: bool,
}

impl<L> PyKeyed<L>
where
    L: KeyLogic<PyKey, Out = Py<PyAny>, Error = PyErr>,
    L::In: Item,
{
    pub(crate) fn make(
        logic: L,
        waits: bool,
        timed: bool,
        wish: &Wish,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(PyKeyed {
            keyed: Keyed::new(logic),
            policy: wish.open(making)?,
            results: Lists::default(),
            late: Lists::default(),
            waits,
            timed,
        })
    }

    fn failure(&self, error: PyErr) -> Failure {
        Failure::new(self.policy.step.clone(), cause(error))
    }

    fn take(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let keys = input.take_keys(py).unwrap_or_else(|| PyList::empty(py));
        let values = input.take_values(py);
        let times = input.times.take();
        let (floor, now) = (cx.floor(), cx.now());
        for (at, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
            let time = times.as_ref().map_or(TIMELESS, |times| times[at]);
            let mut key = PyKey::of(key).map_err(|error| self.failure(error))?;
            let mut item = time.map(|()| Item::of(value.clone().unbind(), input.right));
            loop {
                let mut out = Out {
                    py,
                    results: &mut self.results,
                    late: &mut self.late,
                };
                let Err(fault) = self.keyed.item(key, item, floor, now, &mut out) else {
                    break;
                };
                let said = fault.unseen.is_none().then_some(&value);
                let failed = Some(fault.key.bind(py));
                self.policy.settle(failed, said, fault.error, cx, py)?;
                // What failed was not the item, but what its key had waited for before it.
                let Some(unseen) = fault.unseen else { break };
                (key, item) = (fault.key, unseen);
            }
        }
        self.ask_again(cx);
        Ok(())
    }

    fn advance(&mut self, py: Python<'_>, at: i64, cx: &mut Context) -> Result<(), Failure> {
        loop {
            let mut out = Out {
                py,
                results: &mut self.results,
                late: &mut self.late,
            };
            match self.keyed.advance(at, cx.now(), &mut out) {
                Ok(()) => break,
                Err((key, error)) => {
                    self.policy
                        .settle(Some(key.bind(py)), None, error, cx, py)?;
                }
            }
        }
        self.ask_again(cx);
        Ok(())
    }

    fn finish(&mut self, py: Python<'_>, cx: &mut Context) -> Result<(), Failure> {
        loop {
            let mut out = Out {
                py,
                results: &mut self.results,
                late: &mut self.late,
            };
            match self.keyed.end(cx.now(), &mut out) {
                Ok(()) => return Ok(()),
                Err((key, error)) => {
                    self.policy
                        .settle(Some(key.bind(py)), None, error, cx, py)?;
                }
            }
        }
    }

    fn ask_again(&self, cx: &mut Context) {
        if self.waits
            && let Some(at) = self.keyed.next_processing()
        {
            cx.wake_at(at);
        }
    }

    fn emit(
        &mut self,
        py: Python<'_>,
        output: &mut (PyBatch, PyBatch),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let wrong = |error| Failure::new(cx.step_name(), cause(error));
        output.0 = self.results.batch(py, self.timed).map_err(wrong)?;
        output.1 = self.late.batch(py, true).map_err(wrong)?;
        cx.late(output.1.len());
        Ok(())
    }
}

impl<L> Step<PyBatch, (PyBatch, PyBatch)> for PyKeyed<L>
where
    L: KeyLogic<PyKey, Out = Py<PyAny>, Error = PyErr>,
    L::In: Item,
{
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut (PyBatch, PyBatch),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        locked(|py| {
            self.take(py, input, cx)?;
            self.emit(py, output, cx)
        })
    }
    fn watermark(
        &mut self,
        at: i64,
        output: &mut (PyBatch, PyBatch),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        locked(|py| {
            self.advance(py, at, cx)?;
            self.emit(py, output, cx)
        })
    }
    fn keeps_time(&self) -> bool {
        self.waits
    }
    fn tick(&mut self, output: &mut (PyBatch, PyBatch), cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.advance(py, BEFORE_ALL, cx)?;
            self.emit(py, output, cx)
        })
    }
    fn suspend(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.policy.close(cx)
    }
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        Err(from.unsaved(UNSAVED.into()))
    }
    fn end(&mut self, output: &mut (PyBatch, PyBatch), cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.finish(py, cx)?;
            self.emit(py, output, cx)
        })?;
        self.policy.close(cx)
    }
}
