//! Saving objects of Python: keys and plain values as MessagePack, so that every language reads
//! them, any other object in an extension of it whose type says how `millstream/_values/saving.py` wrote it.

use millstream_flow::FlowError;
use millstream_flow::checkpoint::{Codec, Restore, StateCodec};
use millstream_flow::error::Cause;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyString};

use crate::error::cause;
use crate::gil::locked;
use crate::pickled::{PickleMethod, Plain};

/// The tag of a state that is pickled.
pub(crate) const PICKLE: u8 = b'p';

/// How objects are saved, whatever they are.
pub(crate) fn objects() -> Codec<Py<PyAny>> {
    Codec {
        save: |object, out| locked(|py| save_object(object.bind(py), out)).map_err(cause),
        load: |from| locked(|py| load_object(py, from, None)),
    }
}

/// How the states of a step are saved and read, by the function that makes them.
pub(crate) struct StateMaker {
    /// The function that creates a state: one that restores itself is created first.
    pub(crate) make: Py<PyAny>,
    /// The function of `millstream/_values/revival.py` for a state that was read.
    finish: Option<Py<PyAny>>,
    /// The type whose objects need no conversion.
    plain: Option<Py<PyAny>>,
    /// Classes have other names than when they were saved.
    renamed: bool,
}

impl StateMaker {
    pub(crate) fn by(py: Python<'_>, make: &Py<PyAny>) -> Self {
        let revival = make.bind(py).getattr(intern!(py, "revival")).ok();
        let part = |name| {
            let part = revival.as_ref()?.getattr(name).ok()?;
            (!part.is_none()).then(|| part.unbind())
        };
        StateMaker {
            make: make.clone_ref(py),
            finish: part("finish"),
            plain: part("plain"),
            renamed: part("aliases").is_some(),
        }
    }

    /// Makes the state of a value that was read.
    pub(crate) fn finish(&self, py: Python<'_>, state: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let Some(finish) = &self.finish else {
            return Ok(state);
        };
        let kind = state.bind(py).get_type();
        if self.plain.as_ref().is_some_and(|plain| kind.is(plain)) {
            return Ok(state);
        }
        finish.call1(py, (state,))
    }
}

impl StateCodec<Py<PyAny>> for StateMaker {
    fn save(&self, state: &Py<PyAny>, out: &mut Vec<u8>) -> Result<(), Cause> {
        locked(|py| save_object(state.bind(py), out)).map_err(cause)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Py<PyAny>, Cause> {
        locked(|py| {
            let state = load_object(py, from, Some(self))?;
            self.finish(py, state).map_err(cause)
        })
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

/// Appends an object that is a plain value; false for other objects.
pub(crate) fn save_plain(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
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

/// How objects of the type of this one are written; looked up once.
pub(crate) fn pickle_method_of<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PickleMethod>> {
    static METHODS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = object.py();
    let methods = METHODS
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py);
    let kind = object.get_type();
    if let Some(known) = methods.get_item(&kind)? {
        return Ok(known.cast_into()?);
    }
    let way = Bound::new(py, PickleMethod::of(object)?)?;
    methods.set_item(kind, &way)?;
    Ok(way)
}

/// Appends an object by the method of its type, and returns the method.
fn dump(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<u8> {
    let way = pickle_method_of(object)?;
    let mut parts = Vec::new();
    let way = way.get();
    if way.take(object, &mut parts)? && way.write(&parts, out) {
        return Ok(PICKLE);
    }
    dump_by_module(object, way, out)
}

/// Appends an object that is not written here, as the module of its way writes it.
pub(crate) fn dump_by_module(
    object: &Bound<'_, PyAny>,
    way: &PickleMethod,
    out: &mut Vec<u8>,
) -> PyResult<u8> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DUMP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let by_pickle = if way.is_pickled() {
        let dumps = DUMPS.import(py, "pickle", "dumps")?;
        // The module has the better error.
        dumps.call1((object, 5)).ok()
    } else {
        None
    };
    let (how, written): (u8, Bound<'_, PyBytes>) = match by_pickle {
        Some(written) => (PICKLE, written.cast_into()?),
        None => {
            let dump = DUMP.import(py, "millstream._values.saving", "dump")?;
            dump.call1((object,))?.extract()?
        }
    };
    out.extend_from_slice(written.as_bytes());
    Ok(how)
}

/// Reads an object that was written in the way `how`.
pub(crate) fn read(
    py: Python<'_>,
    how: u8,
    written: &[u8],
    made: Option<&StateMaker>,
) -> PyResult<Py<PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let bytes = PyBytes::new(py, written);
    // Classes of the flow's own file are looked for under all its names.
    let renamed = made.is_some_and(|made| made.renamed);
    if how == PICKLE && !renamed && memchr::memmem::find(written, b"__m").is_none() {
        let loads = LOADS.import(py, "pickle", "loads")?;
        if let Ok(object) = loads.call1((&bytes,)) {
            return Ok(object.unbind());
        }
        // The module has the better error.
    }
    let read = READ.import(py, "millstream._values.saving", "read")?;
    let make = made.map(|made| &made.make);
    read.call1((how, bytes, make)).map(Bound::unbind)
}

/// Reads an object from the front.
pub(crate) fn load_object(
    py: Python<'_>,
    from: &mut &[u8],
    made: Option<&StateMaker>,
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
            read(py, meta.typeid as u8, &written, made).map(|object| object.into_bound(py))
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

/// Restores saved states while the collector of cycles is off: it would traverse all of them each time that there are a
/// quarter more.
pub(crate) fn uncollected<T>(
    from: &Restore<'_>,
    load: impl FnOnce() -> Result<T, FlowError>,
) -> Result<T, FlowError> {
    locked(|py| {
        let failed = |error| from.unsaved(cause(error));
        let workers = py.import("millstream._run.workers").map_err(failed)?;
        let call = |verb| workers.call_method0(verb).map(drop).map_err(failed);
        call("pause_collector")?;
        let loaded = load();
        call("resume_collector")?;
        loaded
    })
}
