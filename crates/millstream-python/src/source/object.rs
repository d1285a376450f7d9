//! A source written in Python: an object with `partitions()` and `open(partition, position, io)`, which
//! returns an object with `next_batch()`, `next_awake()` and `position()`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use millstream_flow::Failure;
use millstream_flow::checkpoint::{Saved, processes_in};
use millstream_flow::clock::now_ns;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{
    Events, Next, Partition, Position, Resumable, Source, SourceSettings,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList};

use super::io::{SourceIo, Wakeups};
use super::reading;
use crate::batch::PyBatch;
use crate::error::{cause, to_python};
use crate::gil::locked;
use crate::saving::{objects, save_object};
use crate::show::{show, type_name};

/// The interval between polls of a source without items, next time and file descriptor.
const ASK_AGAIN_NS: u64 = 1_000_000;

/// A Python object as a source.
pub(crate) struct ObjectSource {
    pub(super) source: Arc<Py<PyAny>>,
    name: String,
    /// How many items a batch has at most.
    batch_size: usize,
    /// Whether it has a method `commit`, which is called after each commit.
    commits: bool,
    /// Whether its method `open` takes an `io`.
    takes_io: OnceLock<bool>,
    /// The names of the partitions as they were returned last: there may be thousands, each of which is opened by its
    /// number.
    known: Mutex<Arc<[String]>>,
}

impl ObjectSource {
    /// An object with a method `open` as the source `name`. Its attribute `batch_size` says how many items a batch has
    /// at most.
    pub(crate) fn new(name: &str, source: &Bound<'_, PyAny>) -> PyResult<Self> {
        let size = source.getattr_opt(intern!(source.py(), "batch_size"))?;
        let commit = source.getattr_opt(intern!(source.py(), "commit"))?;
        Ok(ObjectSource {
            commits: commit.is_some_and(|commit| commit.is_callable()),
            takes_io: OnceLock::new(),
            known: Mutex::new(Arc::new([])),
            source: Arc::new(source.clone().unbind()),
            name: name.to_owned(),
            batch_size: size.map_or(Ok(usize::MAX), |size| reading::batch_size(name, &size))?,
        })
    }

    /// The names of the partitions. A source that takes an argument receives the number of workers.
    fn names(&self, py: Python<'_>, workers: usize) -> PyResult<Vec<String>> {
        let partitions = self.source.bind(py).getattr("partitions")?;
        let names = if takes(&partitions, 1, "workers")? {
            partitions.call1((workers,))?
        } else {
            partitions.call0()?
        };
        let name = |name: PyResult<Bound<'_, PyAny>>| {
            let name = name?;
            name.extract().map_err(|_| {
                let shown = show(&name);
                PyTypeError::new_err(format!(
                    "partition {shown}: the name of a partition is a str that has UTF-8"
                ))
            })
        };
        names.try_iter()?.map(name).collect()
    }

    /// The name of a partition, by its number.
    fn name_of(
        &self,
        py: Python<'_>,
        partition: usize,
        workers: usize,
    ) -> PyResult<Option<String>> {
        let known = self.known();
        match known.get(partition) {
            Some(name) => Ok(Some(name.clone())),
            None => Ok(self.names(py, workers)?.into_iter().nth(partition)),
        }
    }

    fn known(&self) -> Arc<[String]> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn open(
        &self,
        py: Python<'_>,
        partition: usize,
        position: Option<Py<PyAny>>,
        io: SourceIo,
    ) -> PyResult<(Py<PyAny>, bool)> {
        let name = self.name_of(py, partition, io.workers())?;
        let open = self.source.bind(py).getattr("open")?;
        let takes_io = match self.takes_io.get() {
            Some(takes_io) => *takes_io,
            None => {
                let found = takes(&open, 3, "io")?;
                *self.takes_io.get_or_init(|| found)
            }
        };
        let opened = if takes_io {
            open.call1((name, position, io))?
        } else {
            open.call1((name, position))?
        };
        Ok((opened.unbind(), takes_io))
    }
}

/// Whether a function takes this many arguments by position, the last of which is `name` or has no default.
fn takes(function: &Bound<'_, PyAny>, count: usize, name: &str) -> PyResult<bool> {
    let io = function.py().import("millstream._connectors.io")?;
    io.call_method1("takes", (function, count, name))?.extract()
}

impl Source<PyBatch> for ObjectSource {
    fn describe(&self) -> String {
        locked(|py| type_name(self.source.bind(py)))
    }
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause> {
        let names = locked(|py| self.names(py, workers)).map_err(cause)?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = names.clone().into();
        Ok(names)
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<PyBatch>>, Cause> {
        let (of_source, watched) = Wakeups::new(io);
        let position = resume.map(load).transpose()?;
        let opened = locked(|py| {
            let (partition, takes_io) = self.open(py, partition, position, of_source)?;
            let limited = partition.bind(py).hasattr(intern!(py, "_limit"))?;
            let faults = partition.bind(py).hasattr(intern!(py, "_faults"))?;
            Ok::<_, PyErr>((partition, takes_io, limited, faults))
        });
        let (partition, takes_io, limited, faults) = opened.map_err(cause)?;
        let mut watched = takes_io.then_some(watched);
        watched.as_mut().map_or(Ok(()), Wakeups::arm)?;
        Ok(Box::new(ObjectPartition {
            partition,
            limited,
            faults,
            limit: 0,
            name: self.name.clone(),
            awake: None,
            watched,
        }))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            batch_size_max: Some(self.batch_size),
            ..SourceSettings::default()
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        self.commits.then_some(self as &dyn Resumable)
    }
}

struct ObjectPartition {
    partition: Py<PyAny>,
    name: String,
    /// The `_limit` of a source of this package, which returns no more items than that.
    limited: bool,
    limit: usize,
    /// Whether it has `_faults()`, the faults since the last call as text.
    faults: bool,
    awake: Option<u64>,
    /// Its wake-up requests, if it takes an `io`.
    watched: Option<Wakeups>,
}

impl ObjectPartition {
    fn next(&mut self, py: Python<'_>, batch: &mut PyBatch, limit: usize) -> PyResult<Next> {
        let partition = self.partition.bind(py);
        if self.limited && self.limit != limit {
            self.limit = limit;
            partition.setattr(intern!(py, "_limit"), limit)?;
        }
        let next = partition.call_method0(intern!(py, "next_batch"))?;
        if next.is_none() {
            return Ok(Next::End);
        }
        let list = next.cast::<PyList>().map_err(|_| {
            let found = type_name(&next);
            PyTypeError::new_err(format!("next_batch gave {found}, not a list or None"))
        })?;
        if !list.is_empty() {
            // The source may fill its list again.
            *batch = PyBatch::of(list.get_slice(0, list.len()));
            return Ok(Next::Batch);
        }
        let wait = partition
            .call_method0(intern!(py, "next_awake"))?
            .extract::<Option<f64>>()?
            .map(|seconds| (seconds.max(0.0) * 1e9) as u64);
        let wait = match &self.watched {
            Some(_) => wait,
            None => Some(wait.unwrap_or(ASK_AGAIN_NS)),
        };
        self.awake = wait.map(|wait| now_ns().saturating_add(wait));
        Ok(Next::Idle)
    }

    /// Counts and logs the faults that the partition has had.
    fn report_faults(&self, events: &mut Events<'_>) -> Result<(), Cause> {
        if self.faults {
            let faults = locked(|py| {
                let partition = self.partition.bind(py);
                let faults = partition.call_method0(intern!(py, "_faults"))?;
                faults.extract::<Vec<String>>()
            });
            for fault in faults.map_err(cause)? {
                events.fault(&fault);
            }
        }
        Ok(())
    }

    fn failed(&self, cause: Cause) -> Cause {
        Failure::new(self.name.clone(), cause).into()
    }
}

impl Partition<PyBatch> for ObjectPartition {
    fn next_batch(&mut self, batch: &mut PyBatch, events: &mut Events<'_>) -> Result<Next, Cause> {
        self.report_faults(events)?;
        let next = locked(|py| self.next(py, batch, events.limit()))
            .map_err(|error| self.failed(cause(error)))?;
        if let (Next::Idle, Some(watched)) = (next, &mut self.watched) {
            let rested = watched.arm();
            rested.map_err(|cause| self.failed(cause))?;
        }
        Ok(next)
    }
    fn next_awake(&self) -> Option<u64> {
        self.awake
    }
    fn position(&self) -> Result<Position, Cause> {
        let position = locked(|py| {
            let partition = self.partition.bind(py);
            save(&partition.call_method0(intern!(py, "position"))?)
        });
        position.map_err(|error| self.failed(cause(error)))
    }
}

impl Drop for ObjectPartition {
    fn drop(&mut self) {
        call_if_present(&self.partition, "close");
    }
}

/// The version of positions that are no numbers: a value as states are saved.
const VERSION: u8 = 1;

/// What `position()` returned, as a position: an int that fits is a number.
fn save(position: &Bound<'_, PyAny>) -> PyResult<Position> {
    if position.is_instance_of::<PyInt>()
        && let Ok(number) = position.extract::<u64>()
    {
        return Ok(number.into());
    }
    let mut bytes = Vec::new();
    save_object(position, &mut bytes)?;
    Ok(Position::bytes(VERSION, bytes))
}

/// The value of a position.
pub(super) fn load(position: &Position) -> Result<Py<PyAny>, Cause> {
    if let Some(number) = position.number() {
        return locked(|py| Ok(number.into_pyobject(py)?.into_any().unbind())).map_err(cause);
    }
    let (_, mut bytes) = position.require_bytes(VERSION)?;
    (objects().load)(&mut bytes)
}

/// The positions that a state directory has of the sources whose names end so: source, partition, position. None in
/// the state of several processes.
#[pyfunction]
pub(crate) fn saved_positions(
    py: Python<'_>,
    dir: PathBuf,
    ending: &str,
) -> PyResult<Vec<(String, String, Py<PyAny>)>> {
    if !processes_in(&dir)?.is_empty() {
        return Ok(Vec::new());
    }
    let saved = Saved::open(&dir).map_err(|error| to_python(py, error))?;
    let marks = saved.commit().map_or(&[][..], |commit| &commit.sources);
    let marks = marks.iter().filter(|mark| mark.source.ends_with(ending));
    let loaded = marks.map(|mark| {
        let position = load(&mark.position);
        let position = position.map_err(|cause| PyValueError::new_err(cause.to_string()))?;
        Ok((mark.source.clone(), mark.partition.clone(), position))
    });
    loaded.collect()
}

/// Calls a method without arguments, if the object has it. There is no caller that could raise its exception: Python
/// reports it.
pub(super) fn call_if_present(object: &Py<PyAny>, method: &str) {
    locked(|py| {
        let object = object.bind(py);
        let called = object.getattr_opt(method).and_then(|method| match method {
            Some(method) => method.call0().map(|_| ()),
            None => Ok(()),
        });
        if let Err(error) = called {
            error.write_unraisable(py, Some(object));
        }
    });
}
