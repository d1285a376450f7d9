//! Saves the states of a kernel into the journals of a run with recovery.

use millstream_flow::checkpoint::{Changes, Restore, SavedKey};
use millstream_flow::error::Cause;
use millstream_flow::key::{AnyKey, Shards};
use millstream_flow::state::codec::MESSAGE_PACK;
use millstream_flow::step::Context;
use millstream_flow::{Failure, FlowError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyType};

use crate::error::cause;
use crate::gil::locked;
use crate::key::{load_key, save_key, stable_hash};
use crate::pickled::PickleMethod;
use crate::saving::{
    PICKLE, StateMaker, dump_by_module, load_object, pickle_method_of, read, save_plain,
    uncollected,
};
use crate::show::show;

/// The states of a kernel, which is their owner, and which of them have changed in this epoch.
///
/// Invariant: kernels never remove a state, so that the position of a key in the dictionary is the order of its
/// insertion, its *birth*.
pub(crate) struct KernelStates {
    states: Py<PyDict>,
    /// The keys of the states seen so far, in order of insertion.
    keys: Keys,
    /// The keys that were touched, unless all count as changed.
    changed: Py<PySet>,
    /// The positions in `states` of these keys.
    births: Py<PyDict>,
    tracking: ChangeTracking,
}

/// Whether tracking changed keys pays: not where a large part of the keys has changed that were there before the epoch.
/// Keys that are new must be written in any case. Tracking takes as long as it saves, so that it is done in one of
/// several epochs, and as soon as an epoch has fewer items or there are more keys.
#[derive(Default)]
struct ChangeTracking {
    /// All keys count as changed.
    all: bool,
    /// Items in this epoch.
    items: usize,
    /// The number of keys when the epoch began: the others are new.
    known: usize,
    /// The last measurement that a large part of the keys had changed.
    measured: Measurement,
    /// The number of further epochs for which it is assumed of the same number of items and keys.
    granted: u32,
}

/// The number of items in an epoch after which so many keys had changed; both without new keys, which have an item
/// each.
#[derive(Clone, Copy, Default)]
struct Measurement {
    items: usize,
    changed: usize,
}

/// The part of all keys from which on changed keys are no longer distinguished from the others.
const ALL_FROM: usize = 4;
/// The part of which the keys of a measurement must still be, after others were added.
const STILL_FROM: usize = 5;
/// The number of epochs for which that is not measured again.
const GRANTED: u32 = 7;

impl ChangeTracking {
    fn new(known: usize) -> Self {
        ChangeTracking {
            known,
            ..ChangeTracking::default()
        }
    }

    /// Examines the items so far, given the number of keys that they have touched and of all keys now, while changed
    /// keys are distinguished.
    fn measure(&mut self, touched: usize, keys: usize) {
        let new = keys - self.known;
        let changed = touched.saturating_sub(new);
        if !self.all && changed > 0 && changed * ALL_FROM >= self.known {
            self.all = true;
            self.granted = GRANTED;
            self.measured = Measurement {
                items: self.items.saturating_sub(new),
                changed,
            };
        }
    }

    /// The next epoch begins, with this number of keys.
    fn next(&mut self, keys: usize) {
        let Measurement { items, changed } = self.measured;
        let own_items = self.items.saturating_sub(keys - self.known);
        let is_like_measured = own_items >= items && changed * STILL_FROM >= keys;
        self.all = is_like_measured && self.granted > 0;
        self.granted = if self.all { self.granted - 1 } else { 0 };
        self.items = 0;
        self.known = keys;
    }
}

impl KernelStates {
    /// Restores the saved states of a step.
    pub(crate) fn restore(states: &Py<PyAny>, from: &Restore<'_>) -> Result<Self, FlowError> {
        let saved = from.keys()?;
        locked(|py| {
            let states = states.bind(py);
            let make = states.getattr(intern!(py, "make")).ok();
            let make = make.or_else(|| states.getattr(intern!(py, "default_factory")).ok());
            let made = make.map(|make| StateMaker::by(py, &make.unbind()));
            let states = states.cast::<PyDict>();
            let states = states.map_err(|error| from.unsaved(cause(error.into())))?;
            let load = || {
                saved
                    .iter()
                    .try_for_each(|entry| load_into(states, entry, made.as_ref(), from))
            };
            uncollected(from, load)?;
            let changed = PySet::empty(py).map_err(|error| from.unsaved(cause(error)))?;
            // Keys of other workers have other positions there.
            let misplaced = if from.moved() { saved.len() } else { 0 };
            let known = states.len();
            Ok(KernelStates {
                states: states.clone().unbind(),
                keys: Keys::default(),
                changed: changed.unbind(),
                births: PyDict::new(py).unbind(),
                tracking: ChangeTracking {
                    all: misplaced > 0,
                    items: misplaced,
                    ..ChangeTracking::new(known)
                },
            })
        })
    }

    /// Items of these keys are about to be processed.
    pub(crate) fn touch(&mut self, py: Python<'_>, keys: &Py<PyList>) -> PyResult<()> {
        let states = self.states.bind(py);
        let changed = self.changed.bind(py);
        // The states of earlier items exist now.
        self.tracking.measure(changed.len(), states.len());
        if !self.tracking.all {
            changed.call_method1(intern!(py, "update"), (keys,))?;
        }
        self.tracking.items += keys.bind(py).len();
        Ok(())
    }

    /// Writes the keys that have changed, and begins the next epoch.
    pub(crate) fn save(
        &mut self,
        step: &str,
        changes: &mut Changes,
        cx: &Context,
    ) -> Result<(), Failure> {
        if self.tracking.items == 0 {
            return Ok(());
        }
        locked(|py| {
            let wrong = |error| Failure::new(step, cause(error));
            let states = self.states.bind(py);
            let changed = self.changed.bind(py);
            self.tracking.measure(changed.len(), states.len());
            self.keys.learn(states, step, changes.shards())?;
            let mut block = Block::new(step, &self.keys, states, changes);
            if self.tracking.all {
                block.changes.supersede(cx.worker, cx.workers);
                let mut births = 0..;
                for states in in_lists(states).map_err(wrong)? {
                    for (state, born) in states.map_err(wrong)?.iter().zip(&mut births) {
                        block.add(born, state)?;
                    }
                }
            } else {
                let births = self.births.bind(py);
                let known = self.tracking.known;
                for (born, key) in keys_from(states, births.len()).map_err(wrong)? {
                    births.set_item(key, born).map_err(wrong)?;
                }
                let values = states.call_method0(intern!(py, "values"));
                let new = values.and_then(|values| last_of(&values, states.len() - known));
                for (born, state) in (known..).zip(new.map_err(wrong)?) {
                    block.add(born, state)?;
                }
                for key in changed.iter() {
                    // A function may have failed before it made a state.
                    let Some(born) = births.get_item(&key).map_err(wrong)? else {
                        continue;
                    };
                    let born = born.extract().map_err(wrong)?;
                    if born < known
                        && let Some(state) = states.get_item(&key).map_err(wrong)?
                    {
                        block.add(born, state)?;
                    }
                }
            }
            block.write()?;
            changed.clear();
            self.tracking.next(states.len());
            Ok(())
        })
    }
}

/// Adds a key with its state.
fn load_into(
    states: &Bound<'_, PyDict>,
    entry: &SavedKey,
    made: Option<&StateMaker>,
    from: &Restore<'_>,
) -> Result<(), FlowError> {
    let py = states.py();
    let load = || {
        let key = AnyKey::load(&mut &entry.key[..]).ok_or("it is no key")?;
        let key = load_key(py, &key).map_err(cause)?;
        let state = match entry.tag {
            MESSAGE_PACK => load_object(py, &mut &entry.state[..], made)?,
            how => read(py, how, &entry.state, made).map_err(cause)?,
        };
        let state = match made {
            Some(made) => made.finish(py, state).map_err(cause)?,
            None => state,
        };
        states.set_item(key, state).map_err(cause)
    };
    load().map_err(|error: Cause| from.unreadable(entry, error))
}

/// The keys of a dictionary from a position on, with their positions.
fn keys_from<'py>(
    states: &Bound<'py, PyDict>,
    position: usize,
) -> PyResult<impl Iterator<Item = (usize, Bound<'py, PyAny>)>> {
    let keys = last_of(states, states.len() - position)?;
    Ok((position..).zip(keys))
}

/// The last keys of a dictionary or the last members of a view of it; those before them are not iterated.
fn last_of<'py>(view: &Bound<'py, PyAny>, count: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let backwards = view.call_method0(intern!(view.py(), "__reversed__"))?;
    let mut last = backwards
        .try_iter()?
        .take(count)
        .collect::<PyResult<Vec<_>>>()?;
    last.reverse();
    Ok(last)
}

/// The values of a dictionary in chunks: a loop that only builds a list lets the processor fetch several
/// objects at once, and they are still in the cache when they are written.
fn in_lists<'py>(
    states: &Bound<'py, PyDict>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyList>>>> {
    const LENGTH: usize = 512;
    let py = states.py();
    let values = states.call_method0(intern!(py, "values"))?.try_iter()?;
    let part = py.import("itertools")?.getattr("islice")?;
    Ok(std::iter::from_fn(move || {
        let list = part
            .call1((&values, LENGTH))
            .and_then(|part| Ok(py.get_type::<PyList>().call1((part,))?.cast_into()?));
        match list {
            Ok(list) if PyListMethods::is_empty(&list) => None,
            list => Some(list),
        }
    }))
}

/// Encoded keys, by their births: to write a state, its key need not be fetched.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    shards: Vec<u16>,
}

impl Keys {
    /// Adds the keys inserted since the last call.
    fn learn(
        &mut self,
        states: &Bound<'_, PyDict>,
        step: &str,
        shards: Shards,
    ) -> Result<(), Failure> {
        if self.ends.len() == states.len() {
            return Ok(());
        }
        let born = keys_from(states, self.ends.len());
        for (_, key) in born.map_err(|error| Failure::new(step, cause(error)))? {
            let learned = stable_hash(&key).and_then(|hash| {
                save_key(&key, &mut self.bytes)?;
                Ok(shards.of(hash) as u16)
            });
            self.shards.push(learned.map_err(|error| Failure {
                key: Some(show(&key)),
                ..Failure::new(step, cause(error))
            })?);
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    /// The key of a birth, and its shard.
    fn get(&self, born: usize) -> (&[u8], usize) {
        let start = born.checked_sub(1).map_or(0, |last| self.ends[last]);
        (
            &self.bytes[start..self.ends[born]],
            self.shards[born].into(),
        )
    }
}

/// Saves some states at once: the parts of all are fetched before the first of them is written. Objects are spread
/// over memory, and the processor fetches several at once if no other work is between the loads.
///
/// A load that follows a store of another width to the same bytes must wait until all earlier stores reach the cache
/// (failed store forwarding), which delays reference counts and records. So an entry is a few words, and results that
/// may hold an error are examined in place, not moved.
struct Block<'a, 'py> {
    step: &'a str,
    keys: &'a Keys,
    states: &'a Bound<'py, PyDict>,
    changes: &'a mut Changes,
    entries: Vec<(usize, Bound<'py, PyAny>)>,
    /// How the state of each entry is written, if that is known, and where its parts end.
    methods: Vec<(Option<Bound<'py, PickleMethod>>, usize)>,
    parts: Vec<Bound<'py, PyAny>>,
}

impl<'a, 'py> Block<'a, 'py> {
    const ENTRIES: usize = 64;

    fn new(
        step: &'a str,
        keys: &'a Keys,
        states: &'a Bound<'py, PyDict>,
        changes: &'a mut Changes,
    ) -> Self {
        Block {
            step,
            keys,
            states,
            changes,
            entries: Vec::with_capacity(Self::ENTRIES),
            methods: Vec::with_capacity(Self::ENTRIES),
            parts: Vec::new(),
        }
    }

    /// The state of the key with this birth.
    fn add(&mut self, born: usize, state: Bound<'py, PyAny>) -> Result<(), Failure> {
        self.entries.push((born, state));
        match self.entries.len() {
            Self::ENTRIES => self.write(),
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let mut known = None;
        for (born, state) in &self.entries {
            let method = take(state, &mut known, &mut self.parts)
                .map_err(|error| self.failure(*born, cause(error)))?;
            self.methods.push((method, self.parts.len()));
        }
        let mut start = 0;
        for ((born, state), (method, end)) in self.entries.iter().zip(&self.methods) {
            let parts = &self.parts[start..*end];
            let (key, shard) = self.keys.get(*born);
            let put = self.changes.put(
                shard,
                *born as u64,
                |out| out.extend_from_slice(key),
                |out| match method {
                    Some(method) if method.get().write(parts, out) => Ok(PICKLE),
                    _ if save_plain(state, out) => Ok(MESSAGE_PACK),
                    _ => pickle_method_of(state)
                        .and_then(|method| dump_by_module(state, method.get(), out))
                        .map_err(cause),
                },
            );
            if let Err(cause) = put {
                return Err(self.failure(*born, cause));
            }
            start = *end;
        }
        self.entries.clear();
        self.methods.clear();
        self.parts.clear();
        Ok(())
    }

    fn failure(&self, born: usize, cause: Cause) -> Failure {
        let key = keys_from(self.states, born).ok();
        let key = key.and_then(|mut keys| keys.next());
        Failure {
            key: key.map(|(_, key)| show(&key)),
            ..Failure::new(self.step, cause)
        }
    }
}

/// Fetches the parts of a state, and returns how they are written if that is known. States are mostly of one type,
/// whose method is `known`.
fn take<'py>(
    state: &Bound<'py, PyAny>,
    known: &mut Option<(Bound<'py, PyType>, Bound<'py, PickleMethod>)>,
    parts: &mut Vec<Bound<'py, PyAny>>,
) -> PyResult<Option<Bound<'py, PickleMethod>>> {
    let kind = state.get_type();
    let method = match known {
        Some((known, method)) if kind.is(&*known) => method,
        _ => &mut known.insert((kind, pickle_method_of(state)?)).1,
    };
    let taken = method.get().take(state, parts)?;
    Ok(taken.then(|| method.clone()))
}
