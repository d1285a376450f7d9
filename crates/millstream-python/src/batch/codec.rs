//! How a batch of Python objects becomes bytes on its way to another process.
//!
//! ```text
//! bytes    field
//!     1    version of this layout: 1
//!     1    flags: 1 keys, 2 times, 4 times that are datetimes, 8 right stream of a join, 16 records
//!     4    number of items
//!  16 * n  times: time and watermark of each item
//!          records: the length of the pickle of their class, the pickle, the length of each record, their bytes
//!          the rest: a pickle of the lists that are not written above: keys, values
//! ```
//!
//! A batch of keys and values is one pickle (protocol 5): an object that is in it twice arrives as one object. Records
//! of one class travel as the bytes that they are. Numbers are little-endian.
//!
//! Invariant: bytes of another layout are an error. Pickles run code: only an authenticated process may send them.

use millstream_flow::batch::BatchCodec;
use millstream_flow::error::Cause;
use millstream_flow::{Failure, Timed};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple, PyType};

use super::{PyBatch, Times};
use crate::error::cause;
use crate::gil::locked;
use crate::record::{Record, RecordMaker};
use crate::show::show;

/// The version of the layout.
const VERSION: u8 = 1;
const KEYS: u8 = 1;
const TIMES: u8 = 2;
const DATETIMES: u8 = 4;
const RIGHT: u8 = 8;
const RECORDS: u8 = 16;
const ALL: u8 = KEYS | TIMES | DATETIMES | RIGHT | RECORDS;
/// The bytes of a time and a watermark.
const TIME_BYTES: usize = 16;

/// Writes and reads batches of Python objects.
pub(super) struct Objects;

impl BatchCodec<PyBatch> for Objects {
    fn encode(&self, batch: &PyBatch, out: &mut Vec<u8>) -> Result<(), Cause> {
        locked(|py| encode(py, batch, out))
    }
    fn decode(&self, bytes: &[u8]) -> Result<PyBatch, Cause> {
        locked(|py| decode(py, bytes))
    }
}

fn encode(py: Python<'_>, batch: &PyBatch, out: &mut Vec<u8>) -> Result<(), Cause> {
    let keys = batch.keys.as_ref().map(|keys| keys.bind(py));
    let values = batch.values.as_ref().map(|values| values.bind(py));
    let class = values.and_then(|values| class_of_records(values));
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    let times = batch.times.as_ref();
    let flags = flag(keys.is_some(), KEYS)
        | flag(times.is_some(), TIMES)
        | flag(times.is_some_and(|times| times.datetimes), DATETIMES)
        | flag(batch.right, RIGHT)
        | flag(class.is_some(), RECORDS);
    out.extend([VERSION, flags]);
    out.extend(u32::try_from(batch.len)?.to_le_bytes());
    for time in times.iter().flat_map(|times| times.iter()) {
        out.extend(time.time.to_le_bytes());
        out.extend(time.watermark.to_le_bytes());
    }
    let mut lists: Vec<&Bound<'_, PyList>> = keys.into_iter().collect();
    match (class, values) {
        (Some(class), Some(values)) => write_records(&class, values, out)?,
        (_, values) => lists.extend(values),
    }
    if !lists.is_empty() {
        let pickle = PyTuple::new(py, &lists).and_then(|lists| dumps(lists.as_any()));
        let pickle = pickle.map_err(|error| unwritable(error, keys, values))?;
        out.extend_from_slice(pickle.as_bytes());
    }
    Ok(())
}

/// The class of the values, if all are records of one that keep nothing but their bytes.
fn class_of_records<'py>(values: &Bound<'py, PyList>) -> Option<Bound<'py, PyType>> {
    let first = values.get_item(0).ok()?;
    first.cast::<Record>().ok()?;
    let class = first.get_type();
    let attributes = class.getattr("__dictoffset__").and_then(|at| at.extract());
    let alike = values.iter().all(|value| value.get_type().is(&class));
    (alike && matches!(attributes, Ok(0))).then_some(class)
}

fn write_records(
    class: &Bound<'_, PyType>,
    records: &Bound<'_, PyList>,
    out: &mut Vec<u8>,
) -> Result<(), Cause> {
    let pickle = dumps(class.as_any()).map_err(|error| unwritable(error, None, Some(records)))?;
    out.extend(u32::try_from(pickle.as_bytes().len())?.to_le_bytes());
    out.extend_from_slice(pickle.as_bytes());
    let lengths = out.len();
    out.resize(lengths + records.len() * 4, 0);
    for (at, record) in records.iter().enumerate() {
        let record = record
            .cast_into::<Record>()
            .map_err(|error| cause(error.into()))?;
        let bytes = record.get().as_bytes();
        let length = u32::try_from(bytes.len())?.to_le_bytes();
        out[lengths + at * 4..][..4].copy_from_slice(&length);
        out.extend_from_slice(bytes);
    }
    Ok(())
}

fn dumps<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dumps = DUMPS.import(object.py(), "millstream._values.saving", "dump_items")?;
    Ok(dumps.call1((object,))?.cast_into()?)
}

/// The failure of the first key or value that cannot be pickled; that of the batch if each alone can.
fn unwritable(
    error: PyErr,
    keys: Option<&Bound<'_, PyList>>,
    values: Option<&Bound<'_, PyList>>,
) -> Cause {
    let ((Some(list), _) | (None, Some(list))) = (values, keys) else {
        return cause(error);
    };
    let mut failure = Failure::new("", cause(error.clone_ref(list.py())));
    if !error.is_instance_of::<PyException>(list.py()) {
        return failure.into();
    }
    for at in 0..list.len() {
        let of = |list: Option<&Bound<'_, PyList>>| Some(show(&list?.get_item(at).ok()?));
        let refused = [keys, values].into_iter().flatten().find_map(|list| {
            let item = list.get_item(at).ok()?;
            dumps(&item).err()
        });
        if let Some(refused) = refused {
            failure = Failure {
                key: of(keys),
                item: of(values),
                ..Failure::new("", cause(refused))
            };
            break;
        }
    }
    failure.into()
}

fn decode(py: Python<'_>, mut bytes: &[u8]) -> Result<PyBatch, Cause> {
    let [version, flags] = take(&mut bytes)?;
    if version != VERSION || flags & !ALL != 0 {
        return Err(format!("a batch of version {version} with flags {flags:#x}").into());
    }
    let has = |flag: u8| flags & flag != 0;
    let len = u32::from_le_bytes(take(&mut bytes)?) as usize;
    let times = if has(TIMES) {
        Some(Times {
            stamps: read_times(len, &mut bytes)?,
            datetimes: has(DATETIMES),
            ..Times::default()
        })
    } else {
        None
    };
    let records = if has(RECORDS) {
        Some(read_records(py, len, &mut bytes)?)
    } else {
        None
    };
    let mut lists = read_lists(py, bytes, len).map_err(cause)?.into_iter();
    let keys = if has(KEYS) { lists.next() } else { None };
    let values = records.or_else(|| lists.next());
    let complete = len == 0 || (values.is_some() && keys.is_some() == has(KEYS));
    if !complete || lists.next().is_some() {
        return Err("a batch with other lists than it names".into());
    }
    Ok(PyBatch {
        keys: keys.map(Bound::unbind),
        values: values.map(Bound::unbind),
        times,
        right: has(RIGHT),
        len,
    })
}

fn read_times(len: usize, bytes: &mut &[u8]) -> Result<Vec<Timed<()>>, Cause> {
    let needed = len
        .checked_mul(TIME_BYTES)
        .filter(|needed| *needed <= bytes.len());
    needed.ok_or_else(truncated)?;
    let mut times = Vec::with_capacity(len);
    for _ in 0..len {
        times.push(Timed {
            time: i64::from_le_bytes(take(bytes)?),
            watermark: i64::from_le_bytes(take(bytes)?),
            value: (),
        });
    }
    Ok(times)
}

fn read_records<'py>(
    py: Python<'py>,
    len: usize,
    bytes: &mut &[u8],
) -> Result<Bound<'py, PyList>, Cause> {
    let length = u32::from_le_bytes(take(bytes)?) as usize;
    let class = loads(py, part(bytes, length)?).map_err(cause)?;
    let class = class
        .cast_into::<PyType>()
        .map_err(|error| cause(error.into()))?;
    let maker = RecordMaker::of(&class).map_err(cause)?;
    let maker = maker.ok_or_else(|| format!("{} is no record", show(class.as_any())))?;
    let mut lengths = part(bytes, len.checked_mul(4).ok_or_else(truncated)?)?;
    let records = PyList::empty(py);
    for _ in 0..len {
        let length = u32::from_le_bytes(take(&mut lengths)?) as usize;
        let record = maker.make(py, part(bytes, length)?).map_err(cause)?;
        records.append(record).map_err(cause)?;
    }
    Ok(records)
}

/// The lists of a pickle, each of `len` objects; none of no bytes.
fn read_lists<'py>(py: Python<'py>, bytes: &[u8], len: usize) -> PyResult<Vec<Bound<'py, PyList>>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let lists: Vec<Bound<'py, PyList>> = loads(py, bytes)?.extract()?;
    match lists.iter().find(|list| list.len() != len) {
        Some(list) => {
            let found = list.len();
            let error = format!("a list of {found} objects in a batch of {len}");
            Err(PyValueError::new_err(error))
        }
        None => Ok(lists),
    }
}

fn loads<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.import(py, "millstream._values.saving", "read_items")?;
    loads.call1((PyBytes::new(py, bytes),))
}

/// Takes so many bytes off the front.
fn part<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Cause> {
    let (part, rest) = bytes.split_at_checked(length).ok_or_else(truncated)?;
    *bytes = rest;
    Ok(part)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Cause> {
    let (taken, rest) = bytes.split_first_chunk().ok_or_else(truncated)?;
    *bytes = rest;
    Ok(*taken)
}

fn truncated() -> Cause {
    "the batch is truncated".into()
}
