//! Saving the states of Python steps: keys and plain values as MessagePack, so that every language reads
//! them, any other object in an extension of it whose type says how `millstream/_saving.py` wrote it.

use std::ops::Range;

use millstream_flow::error::Cause;
use millstream_flow::key::{AnyKey, save_bytes, save_integer, save_text, save_tuple, shard};
use millstream_flow::recovery::codec::MESSAGE_PACK;
use millstream_flow::recovery::{Changes, Codec, Restore, StateCodec};
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyTuple, PyType,
};

use crate::error::cause;
use crate::gil::locked;
use crate::pickled::{Plain, Way};
use crate::route::stable_hash;
use crate::show::show;

/// The tag of a state that is pickled.
const PICKLE: u8 = b'p';

/// The states of a kernel, which is their owner, and which of them have changed in this epoch.
///
/// Invariant: kernels never remove a state, so that the place of a key in the dictionary is the number of its
/// birth.
pub(crate) struct Keeper {
    states: Py<PyDict>,
    /// The keys that were touched; all have, once they are a good part of the states.
    changed: Py<PySet>,
    all: bool,
    /// The places of keys in `states`, of the first so many.
    births: Py<PyDict>,
}

/// From so many parts of all on, the keys that have changed are not told from the others any more.
const ALL_FROM: usize = 4;

impl Keeper {
    /// Takes up what was saved of a step.
    pub(crate) fn restore(states: &Py<PyAny>, from: &Restore<'_>) -> Result<Self, FlowError> {
        let saved = from.keys()?;
        locked(|py| {
            let states = states.bind(py);
            let make = states.getattr(intern!(py, "make")).ok().map(Bound::unbind);
            let states = states.cast::<PyDict>();
            let states = states.map_err(|error| from.unsaved(cause(error.into())))?;
            for entry in &saved {
                let load = || {
                    let key = AnyKey::load(&mut &entry.key[..]).ok_or("it is no key")?;
                    let key = load_key(py, &key).map_err(cause)?;
                    let state = match entry.tag {
                        MESSAGE_PACK => load_object(py, &mut &entry.state[..], make.as_ref())?,
                        how => read(py, how, &entry.state, make.as_ref()).map_err(cause)?,
                    };
                    states.set_item(key, state).map_err(cause)
                };
                load().map_err(|error: Cause| from.unreadable(entry, error))?;
            }
            let changed = PySet::empty(py).map_err(|error| from.unsaved(cause(error)))?;
            Ok(Keeper {
                states: states.clone().unbind(),
                changed: changed.unbind(),
                // Keys that came from other workers have other places there.
                all: from.moved() && !saved.is_empty(),
                births: PyDict::new(py).unbind(),
            })
        })
    }

    /// Items of these keys are about to be processed.
    pub(crate) fn touch(&mut self, py: Python<'_>, keys: &Py<PyList>) -> PyResult<()> {
        if !self.all {
            let changed = self.changed.bind(py);
            changed.call_method1(intern!(py, "update"), (keys,))?;
            self.all = changed.len() * ALL_FROM >= self.states.bind(py).len();
        }
        Ok(())
    }

    /// Writes the keys that have changed, and begins the next epoch.
    pub(crate) fn save(&mut self, step: &str, changes: &mut Changes) -> Result<(), Failure> {
        locked(|py| {
            let wrong = |error| Failure::new(step, cause(error));
            let (states, changed) = (self.states.bind(py), self.changed.bind(py));
            let mut block = Block::new(step, changes);
            if self.all {
                for (born, (key, state)) in (0..).zip(states.iter()) {
                    block.add(key, born, state)?;
                }
            } else if !changed.is_empty() {
                let births = self.births.bind(py);
                if births.len() < states.len() {
                    let known = births.len();
                    for (born, (key, _)) in (0u64..).zip(states.iter()).skip(known) {
                        births.set_item(key, born).map_err(wrong)?;
                    }
                }
                for key in changed.iter() {
                    // A function may have failed before it made a state.
                    let Some(state) = states.get_item(&key).map_err(wrong)? else {
                        continue;
                    };
                    let born = births.get_item(&key).map_err(wrong)?;
                    let born = born.map_or(Ok(0), |born| born.extract::<u64>());
                    block.add(key, born.map_err(wrong)?, state)?;
                }
            }
            block.write()?;
            changed.clear();
            self.all = false;
            Ok(())
        })
    }
}

/// Keys of a kernel on their way, some at once: the parts of all their states are fetched before the first of them is looked at. Objects lie
/// anywhere in memory, and the processor waits for several at once where it has nothing else to do in between.
struct Block<'a, 'py> {
    step: &'a str,
    changes: &'a mut Changes,
    entries: Vec<Entry<'py>>,
    parts: Vec<Bound<'py, PyAny>>,
}

struct Entry<'py> {
    key: Bound<'py, PyAny>,
    born: u64,
    state: Bound<'py, PyAny>,
    /// How the state is written, and where its parts are, if these are known.
    taken: Option<(Bound<'py, Way>, Range<usize>)>,
}

impl<'a, 'py> Block<'a, 'py> {
    const ENTRIES: usize = 64;

    fn new(step: &'a str, changes: &'a mut Changes) -> Self {
        Block {
            step,
            changes,
            entries: Vec::with_capacity(Self::ENTRIES),
            parts: Vec::new(),
        }
    }

    fn add(
        &mut self,
        key: Bound<'py, PyAny>,
        born: u64,
        state: Bound<'py, PyAny>,
    ) -> Result<(), Failure> {
        self.entries.push(Entry {
            key,
            born,
            state,
            taken: None,
        });
        match self.entries.len() {
            Self::ENTRIES => self.write(),
            _ => Ok(()),
        }
    }

    fn write(&mut self) -> Result<(), Failure> {
        let step = self.step;
        let failed = |key: &Bound<'_, PyAny>, error| Failure {
            key: Some(show(key)),
            ..Failure::new(step, cause(error))
        };
        let mut known = None;
        for entry in &mut self.entries {
            entry
                .take(&mut known, &mut self.parts)
                .map_err(|error| failed(&entry.key, error))?;
        }
        for entry in self.entries.drain(..) {
            entry
                .put(&self.parts, self.changes)
                .map_err(|error| failed(&entry.key, error))?;
        }
        self.parts.clear();
        Ok(())
    }
}

impl<'py> Entry<'py> {
    /// Fetches the parts of the state. States are mostly of one type, whose way is `known`.
    fn take(
        &mut self,
        known: &mut Option<(Bound<'py, PyType>, Bound<'py, Way>)>,
        parts: &mut Vec<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let kind = self.state.get_type();
        let way = match known {
            Some((known, way)) if kind.is(&*known) => way,
            _ => &mut known.insert((kind, way_of(&self.state)?)).1,
        };
        let start = parts.len();
        if way.get().take(&self.state, parts)? {
            self.taken = Some((way.clone(), start..parts.len()));
        }
        Ok(())
    }

    fn put(&self, parts: &[Bound<'py, PyAny>], changes: &mut Changes) -> PyResult<()> {
        let mut written = Ok(());
        let write_key = |out: &mut Vec<u8>| written = save_key(&self.key, out);
        let shard = shard(stable_hash(&self.key)?);
        changes.put(shard, self.born, write_key, |out| match &self.taken {
            Some((way, range)) if way.get().write(&parts[range.clone()], out) => Ok(PICKLE),
            _ if save_plain(&self.state, out) => Ok(MESSAGE_PACK),
            _ => dump_by_module(&self.state, way_of(&self.state)?.get(), out),
        })?;
        written
    }
}

/// How objects are saved, whatever they are.
pub(crate) fn objects() -> Codec<Py<PyAny>> {
    Codec {
        save: |object, out| locked(|py| save_object(object.bind(py), out)).map_err(cause),
        load: |from| locked(|py| load_object(py, from, None)),
    }
}

/// How states are saved that `make` makes: one that restores itself is made by it first.
pub(crate) struct Made(pub(crate) Py<PyAny>);

impl StateCodec<Py<PyAny>> for Made {
    fn save(&self, state: &Py<PyAny>, out: &mut Vec<u8>) -> Result<(), Cause> {
        locked(|py| save_object(state.bind(py), out)).map_err(cause)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Py<PyAny>, Cause> {
        locked(|py| load_object(py, from, Some(&self.0)))
    }
}

/// Appends an object as one value of MessagePack.
pub(crate) fn save_object(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if !save_plain(object, out) {
        let mut written = Vec::new();
        let how = dump(object, &mut written)?;
        // Writing to memory does not fail.
        let _ = rmp::encode::write_ext_meta(out, written.len() as u32, how as i8);
        out.append(&mut written);
    }
    Ok(())
}

/// Appends an object that is a plain value as what it is; false when it is something else.
fn save_plain(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    let Some(plain) = Plain::of(object) else {
        return false;
    };
    // Writing to memory does not fail.
    match plain {
        Plain::None => rmp::encode::write_nil(out).is_ok(),
        Plain::Bool(flag) => rmp::encode::write_bool(out, flag).is_ok(),
        Plain::Float(float) => rmp::encode::write_f64(out, float).is_ok(),
        Plain::Integer(number) => rmp::encode::write_sint(out, number).is_ok(),
        Plain::Text(text) => rmp::encode::write_str(out, text).is_ok(),
    }
}

/// How objects of the type of this one are written, which is asked for once.
fn way_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Way>> {
    static WAYS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = object.py();
    let ways = WAYS.get_or_init(py, || PyDict::new(py).unbind()).bind(py);
    let kind = object.get_type();
    if let Some(known) = ways.get_item(&kind)? {
        return Ok(known.cast_into()?);
    }
    let way = Bound::new(py, Way::of(object)?)?;
    ways.set_item(kind, &way)?;
    Ok(way)
}

/// Appends an object in the way of its type, and tells what that is.
fn dump(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<u8> {
    let (way, mut parts) = (way_of(object)?, Vec::new());
    let way = way.get();
    if way.take(object, &mut parts)? && way.write(&parts, out) {
        return Ok(PICKLE);
    }
    dump_by_module(object, way, out)
}

/// Appends an object that is not written here, as the module of its way writes it.
fn dump_by_module(object: &Bound<'_, PyAny>, way: &Way, out: &mut Vec<u8>) -> PyResult<u8> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DUMP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let (how, written): (u8, Bound<'_, PyBytes>) = if way.is_pickled() {
        let dumps = DUMPS.import(py, "pickle", "dumps")?;
        (PICKLE, dumps.call1((object, 5))?.cast_into()?)
    } else {
        let dump = DUMP.import(py, "millstream._saving", "dump")?;
        dump.call1((object,))?.extract()?
    };
    out.extend_from_slice(written.as_bytes());
    Ok(how)
}

/// Reads an object that was written in the way `how`.
fn read(py: Python<'_>, how: u8, written: &[u8], make: Option<&Py<PyAny>>) -> PyResult<Py<PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let bytes = PyBytes::new(py, written);
    // Classes of the flow's own file are looked for under all its names.
    if how == PICKLE && !written.windows(3).any(|part| part == b"__m") {
        let loads = LOADS.import(py, "pickle", "loads")?;
        return loads.call1((bytes,)).map(Bound::unbind);
    }
    let read = READ.import(py, "millstream._saving", "read")?;
    read.call1((how, bytes, make)).map(Bound::unbind)
}

/// Takes an object off the front.
fn load_object(
    py: Python<'_>,
    from: &mut &[u8],
    make: Option<&Py<PyAny>>,
) -> Result<Py<PyAny>, Cause> {
    use rmp::Marker;
    let take = |from: &mut &[u8], length: u32| {
        let (taken, rest) = from
            .split_at_checked(length as usize)
            .ok_or("it breaks off")?;
        *from = rest;
        Ok::<_, Cause>(taken.to_vec())
    };
    let first = from.first().ok_or("it breaks off")?;
    let object = match Marker::from_u8(*first) {
        Marker::Null => {
            rmp::decode::read_nil(from)?;
            Ok(py.None().into_bound(py))
        }
        Marker::True | Marker::False => {
            let flag = rmp::decode::read_bool(from)?;
            Ok(PyBool::new(py, flag).to_owned().into_any())
        }
        Marker::F64 => Ok(PyFloat::new(py, rmp::decode::read_f64(from)?).into_any()),
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let length = rmp::decode::read_str_len(from)?;
            let text = String::from_utf8(take(from, length)?)?;
            Ok(PyString::new(py, &text).into_any())
        }
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => {
            let meta = rmp::decode::read_ext_meta(from)?;
            let written = take(from, meta.size)?;
            read(py, meta.typeid as u8, &written, make).map(|object| object.into_bound(py))
        }
        _ => {
            let number: i64 = rmp::decode::read_int(from)?;
            number
                .into_pyobject(py)
                .map(Bound::into_any)
                .map_err(Into::into)
        }
    };
    Ok(object.map_err(cause)?.unbind())
}

/// Appends a key.
pub(crate) fn save_key(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(text) = key.cast::<PyString>() {
        save_text(text.to_str()?, out);
    } else if let Ok(bytes) = key.cast::<PyBytes>() {
        save_bytes(bytes.as_bytes(), out);
    } else if key.is_instance_of::<PyInt>() {
        let narrow = key.extract::<i64>().map(i128::from);
        save_integer(narrow.or_else(|_| key.extract())?, out);
    } else if let Ok(members) = key.cast::<PyTuple>() {
        save_tuple(members.len() as u32, out);
        for member in members.iter() {
            save_key(&member, out)?;
        }
    } else {
        return Err(PyTypeError::new_err(format!("{} is no key", show(key))));
    }
    Ok(())
}

/// A key as Python has it.
pub(crate) fn load_key<'py>(py: Python<'py>, key: &AnyKey) -> PyResult<Bound<'py, PyAny>> {
    Ok(match key {
        AnyKey::Text(text) => PyString::new(py, text).into_any(),
        AnyKey::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        AnyKey::Integer(number) => number.into_pyobject(py)?.into_any(),
        AnyKey::Tuple(members) => {
            let members = members.iter().map(|member| load_key(py, member));
            PyTuple::new(py, members.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
    })
}
