//! Keyed state with event time, on Python objects: the engine's table of keys, with Python
//! objects as keys and values.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::checkpoint::{Changes, Restore};
use millstream_flow::join::Side;
use millstream_flow::key::{AnyKey, Key, key_of_worker};
use millstream_flow::state::{KeyLogic, Keyed, Outputs};
use millstream_flow::step::{Context, StateSize, Stateful, Step};
use millstream_flow::stream::Making;
use millstream_flow::time::BEFORE_ALL;
use millstream_flow::{Failure, FlowError, Timed};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::{PyBatch, Times};
use crate::error::cause;
use crate::gather::time_of_all;
use crate::gil::locked;
use crate::join_keys::JoinKeys;
use crate::key::{load_key, save_key, stable_hash};
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::saving::uncollected;
use crate::show::show;
use crate::time::TIMELESS;

/// A key with its stable hash. The interpreter has another one, which is the same for many integers: it is not used.
pub(crate) struct PyKey {
    object: Py<PyAny>,
    hash: u64,
}

impl PyKey {
    pub(crate) fn of(object: Bound<'_, PyAny>) -> PyResult<Self> {
        let hash = stable_hash(&object)?;
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
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for PyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        locked(|py| f.write_str(&show(self.bind(py))))
    }
}

/// `key_by` has checked the keys: the following works with each.
impl Key for PyKey {
    fn stable_hash(&self) -> u64 {
        self.hash
    }
    fn save(&self, out: &mut Vec<u8>) {
        let saved = locked(|py| save_key(self.bind(py), out));
        debug_assert!(saved.is_ok(), "key_by has checked {self:?}");
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        let key = AnyKey::load(bytes)?;
        locked(|py| PyKey::of(load_key(py, &key).ok()?).ok())
    }
}

/// The value that the logic of a step receives: the object, or the object and its side of a join.
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

/// Lists of keys, values and times under construction.
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

    fn batch(
        &mut self,
        py: Python<'_>,
        (keyed, timed): (bool, bool),
        datetimes: bool,
    ) -> PyResult<PyBatch> {
        if self.keys.is_empty() {
            return Ok(PyBatch::default());
        }
        let keys = self.keys.drain(..);
        let keys = keyed.then(|| PyList::new(py, keys)).transpose()?;
        let values = PyList::new(py, self.values.drain(..))?;
        let stamps = std::mem::take(&mut self.times);
        let times = Times {
            stamps,
            datetimes,
            ..Times::default()
        };
        Ok(PyBatch::keyed(keys, values).at(timed.then_some(times)))
    }
}

/// The outputs of one call of the engine.
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

/// A step with a state for each key. Its outputs are results and late items.
pub(crate) struct PyKeyed<L: KeyLogic<PyKey>> {
    keyed: Keyed<PyKey, L>,
    policy: ErrorHandler,
    results: Lists,
    late: Lists,
    traits: Traits,
    /// Whether times are datetimes: the logic may read it, and sets it when it restores saved state.
    datetimes: Rc<Cell<bool>>,
    /// The key of all values of this worker, where the stream has no keys.
    common: PyKey,
    /// The keys of both streams, of a join.
    joined: Option<Arc<JoinKeys>>,
}

/// The properties of a step.
#[derive(Clone, Copy)]
pub(crate) struct Traits {
    /// Keys may wait for moments in processing time.
    pub(crate) waits: bool,
    /// Outputs have times.
    pub(crate) timed: bool,
    /// The stream has keys.
    pub(crate) keyed: bool,
    /// The event time after which a key without values is removed.
    pub(crate) life: Option<i64>,
}

impl Traits {
    /// Those of a step of a stream with keys.
    pub(crate) fn keyed(waits: bool, timed: bool, life: Option<i64>) -> Self {
        Traits {
            waits,
            timed,
            keyed: true,
            life,
        }
    }
}

impl<L> PyKeyed<L>
where
    L: KeyLogic<PyKey, Out = Py<PyAny>, Error = PyErr>,
    L::In: Item,
{
    pub(crate) fn make(
        logic: L,
        traits: Traits,
        on_error: &OnErrorOption,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let common = key_of_worker(making.worker, making.shards);
        let common = locked(|py| PyKey::of(common.into_pyobject(py)?.into_any()));
        let common =
            common.map_err(|error| Failure::new(making.info.name.clone(), cause(error)))?;
        Ok(PyKeyed {
            keyed: Keyed::new(logic),
            common,
            policy: on_error.open(making)?,
            results: Lists::default(),
            late: Lists::default(),
            traits,
            datetimes: Rc::default(),
            joined: None,
        })
    }

    /// The same for a join, whose keys are noted.
    pub(crate) fn joining(self, joined: Option<Arc<JoinKeys>>) -> Self {
        PyKeyed { joined, ..self }
    }

    /// The same with a note, shared with its logic, of whether times are datetimes.
    pub(crate) fn noting(self, datetimes: Rc<Cell<bool>>) -> Self {
        PyKeyed { datetimes, ..self }
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
        let keys = input.take_keys(py);
        let values = input.take_values(py);
        let times = input.times.take();
        if times.as_ref().is_some_and(|times| times.datetimes) {
            self.datetimes.set(true);
        }
        if let (Some(joined), Some(keys)) = (&self.joined, &keys) {
            joined.see(keys, input.right);
        }
        for (at, value) in values.iter().enumerate() {
            let key = match &keys {
                Some(keys) => keys.get_item(at).and_then(PyKey::of),
                None => Ok(self.common.clone()),
            }
            .map_err(|error| self.failure(error))?;
            let members = times.as_ref().and_then(|times| times.members.get(at));
            if let (Some(members), Ok(list)) = (members, value.cast::<PyList>()) {
                self.take_list(&key, list, members, cx)?;
                continue;
            }
            let time = times.as_ref().map_or(TIMELESS, |times| times[at]);
            self.take_one(key, &value, (time, input.right), cx)?;
        }
        self.handle_refused(py, cx)?;
        self.ask_again(cx);
        Ok(())
    }

    /// Passes a value to its key.
    fn take_one(
        &mut self,
        mut key: PyKey,
        value: &Bound<'_, PyAny>,
        (time, right): (Timed<()>, bool),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let py = value.py();
        let floor = cx.floor();
        let now = cx.now();
        let mut item = time.map(|()| Item::of(value.clone().unbind(), right));
        loop {
            let mut out = Out {
                py,
                results: &mut self.results,
                late: &mut self.late,
            };
            let Err(fault) = self.keyed.item(key, item, floor, now, &mut out) else {
                return Ok(());
            };
            let said = fault.unseen.is_none().then_some(value);
            let failed = Some(fault.key.bind(py));
            self.policy.handle(failed, said, fault.error, cx, py)?;
            // The failure is not of the item, but of an earlier request of its key.
            let Some(unseen) = fault.unseen else {
                return Ok(());
            };
            (key, item) = (fault.key, unseen);
        }
    }

    /// Passes a list of values to its key, in parts where something of the key is due between two values.
    fn take_list(
        &mut self,
        key: &PyKey,
        list: &Bound<'_, PyList>,
        members: &[Timed<()>],
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let mut start = 0;
        let life = self.traits.life;
        while start < members.len() {
            let rest = &members[start..];
            let count = self.keyed.undivided(key, rest, cx.floor(), life);
            let time = time_of_all(&rest[..count]);
            let part = list.get_slice(start, start + count);
            self.take_one(key.clone(), &part, (time, false), cx)?;
            start += count;
        }
        Ok(())
    }

    /// Handles the items that were refused when results were made, each by itself.
    fn handle_refused(&mut self, py: Python<'_>, cx: &mut Context) -> Result<(), Failure> {
        while let Some((key, item, error)) = self.keyed.take_refused() {
            let key = key.bind(py);
            let item = item.object();
            self.policy
                .handle(Some(key), Some(item.bind(py)), error, cx, py)?;
        }
        Ok(())
    }

    /// Makes a call of the keys until it has no failure any more, and handles those.
    fn repeat(
        &mut self,
        py: Python<'_>,
        cx: &mut Context,
        mut call: impl FnMut(&mut Keyed<PyKey, L>, i64, &mut Out<'_, '_>) -> Result<(), (PyKey, PyErr)>,
    ) -> Result<(), Failure> {
        loop {
            let mut out = Out {
                py,
                results: &mut self.results,
                late: &mut self.late,
            };
            match call(&mut self.keyed, cx.now(), &mut out) {
                Ok(()) => return self.handle_refused(py, cx),
                Err((key, error)) => {
                    self.policy
                        .handle(Some(key.bind(py)), None, error, cx, py)?;
                }
            }
        }
    }

    fn advance(&mut self, py: Python<'_>, at: i64, cx: &mut Context) -> Result<(), Failure> {
        self.repeat(py, cx, |keyed, now, out| keyed.advance(at, now, out))?;
        self.ask_again(cx);
        Ok(())
    }

    fn ask_again(&self, cx: &mut Context) {
        if self.traits.waits
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
        let Traits { timed, keyed, .. } = self.traits;
        let datetimes = self.datetimes.get();
        let results = &mut self.results;
        let late = &mut self.late;
        output.0 = results
            .batch(py, (keyed, timed), datetimes)
            .map_err(wrong)?;
        output.1 = late.batch(py, (keyed, true), datetimes).map_err(wrong)?;
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
        self.traits.waits
    }
    fn tick(&mut self, output: &mut (PyBatch, PyBatch), cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.advance(py, BEFORE_ALL, cx)?;
            self.emit(py, output, cx)
        })
    }
    fn drain(&mut self, output: &mut (PyBatch, PyBatch), cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.repeat(py, cx, |keyed, now, out| keyed.drain(now, out))?;
            self.emit(py, output, cx)
        })
    }
    fn end(&mut self, output: &mut (PyBatch, PyBatch), cx: &mut Context) -> Result<(), Failure> {
        locked(|py| {
            self.repeat(py, cx, |keyed, now, out| keyed.end(now, out))?;
            self.emit(py, output, cx)
        })
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
}

impl<L> Stateful for PyKeyed<L>
where
    L: KeyLogic<PyKey, Out = Py<PyAny>, Error = PyErr>,
    L::In: Item,
{
    fn size(&self) -> Option<StateSize> {
        Some(self.keyed.size())
    }
    fn save(&mut self, changes: &mut Changes, _: &mut Context) -> Result<(), Failure> {
        locked(|_| self.keyed.save(&self.policy.step, changes))
    }
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        uncollected(from, || self.keyed.restore(from))
    }
}
