//! Tests of Python components as YAML files, and journals as YAML.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::error::context;
use millstream_journal::{Journal, Options};
use millstream_service::testing::{self as native, Mode, check, check_variant};
use millstream_service::{Calls, history, latency};
use millstream_wire::{Call, Cause, Record, Schema, Timestamp};
use pyo3::prelude::*;

use super::interface::Interface;
use super::outlet::Recorder;
use super::runner::{Clock, When, dispatch, named_tick, tick};
use crate::error::{cause, raised, service_error, service_failed_test};
use crate::gil::unlocked;

/// The interfaces of a component and its methods for each; its timers.
type Made = (Vec<(Py<Interface>, Vec<Py<PyAny>>)>, Vec<TestedTimer>);

/// A timer: its name, when it is called (`None`: a one-off timer), and the component's method.
type TestedTimer = (String, Option<Py<When>>, Py<PyAny>);

/// Runs the test of a folder, or the one variant of it that `variant` names. `make(recorder, clock)` makes a component
/// and returns its interfaces, methods and timers. Returns how many runs passed, the differences by file, the files
/// that were rewritten, and how many variants were left out.
#[pyfunction]
#[expect(
    clippy::type_complexity,
    reason = "a few lists, taken apart at once by the package"
)]
#[expect(
    clippy::too_many_arguments,
    reason = "called from one place in the package"
)]
pub(crate) fn service_test(
    py: Python<'_>,
    folder: PathBuf,
    inputs: Vec<Py<Interface>>,
    outputs: Vec<Py<Interface>>,
    update: bool,
    agitate: bool,
    variant: Option<&str>,
    make: &Bound<'_, PyAny>,
) -> PyResult<(usize, Vec<(PathBuf, String)>, Vec<PathBuf>, usize)> {
    let inputs = schemas(&inputs);
    let outputs = schemas(&outputs);
    let run = |setup: &[Call], input: &[Call]| -> Result<Vec<Call>, Cause> {
        let recorder = Bound::new(py, Recorder::of_component()).map_err(cause)?;
        let clock = millstream_service::Clock::of_test();
        let py_clock = Clock {
            clock: clock.clone(),
        };
        let made = make
            .call1((&recorder, py_clock))
            .and_then(|made| made.extract());
        let (made, timers): Made = made.map_err(cause)?;
        let mut interfaces = Vec::new();
        for (interface, methods) in made {
            let schema = interface.get().schema.clone();
            interfaces.push((schema, dispatch::<()>(interface, methods)));
        }
        let mut trial = native::Trial::new((), clock);
        for timer in timers {
            trial = timed(trial, timer);
        }
        let mut call = |call: &Call| -> Result<(), Cause> {
            trial.pass_until(call)?;
            if call.method.is_empty() {
                return Ok(()); // a document with only a time
            }
            let known = interfaces
                .iter_mut()
                .find(|(schema, _)| schema.method_named(&call.method).is_ok());
            let (schema, dispatch) = known.ok_or("the component has no such method")?;
            let body = call.to_bytes(schema, None)?;
            match Record::read(&body)? {
                Record::Call(_, head, arguments) => Ok(dispatch(&mut (), head.method, arguments)?),
                Record::Note(_) => Ok(()),
            }
        };
        setup.iter().try_for_each(&mut call)?;
        recorder.get().recorder.take();
        input.iter().try_for_each(&mut call)?;
        Ok(recorder.get().recorder.take())
    };
    let outcome = match variant {
        Some(name) => check_variant(&folder, &inputs, &outputs, name, update, run),
        None => check(&folder, &inputs, &outputs, Mode { update, agitate }, run),
    };
    let outcome = outcome.map_err(|error| service_failed_test(py, error))?;
    Ok((
        outcome.passed,
        outcome.failed,
        outcome.updated,
        outcome.left_out,
    ))
}

fn timed(trial: native::Trial<()>, (name, when, call): TestedTimer) -> native::Trial<()> {
    match when {
        Some(when) => trial.timer(when.get().when.clone(), tick(call)),
        None => trial.one_off(&name, named_tick(call)),
    }
}

fn schemas(interfaces: &[Py<Interface>]) -> Vec<Schema> {
    let schemas = interfaces.iter();
    schemas
        .map(|interface| interface.get().schema.clone())
        .collect()
}

/// The names of the variants of the test in a folder.
#[pyfunction]
pub(crate) fn service_variants(
    py: Python<'_>,
    folder: PathBuf,
    inputs: Vec<Py<Interface>>,
) -> PyResult<Vec<String>> {
    let names = native::variant_names(&folder, &schemas(&inputs));
    names.map_err(|error| service_failed_test(py, error))
}

/// The time of a component under test, and its timers.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Trial {
    clock: millstream_service::Clock,
    trial: Mutex<Option<native::Trial<()>>>,
}

#[pymethods]
impl Trial {
    #[new]
    fn new() -> Self {
        let clock = millstream_service::Clock::of_test();
        let trial = Mutex::new(Some(native::Trial::new((), clock.clone())));
        Self { clock, trial }
    }

    /// The time that the component sees.
    fn clock(&self) -> Clock {
        Clock {
            clock: self.clock.clone(),
        }
    }

    /// Calls `method` with the time at times; `None`: with a name and the time, by one-off timers.
    fn timer(
        &self,
        py: Python<'_>,
        name: String,
        when: Option<Py<When>>,
        method: Py<PyAny>,
    ) -> PyResult<()> {
        self.with(py, |trial| (timed(trial, (name, when, method)), Ok(())))
    }

    /// Advances the time to a moment in ns since 1970.
    fn advance_to(&self, py: Python<'_>, at_ns: i64) -> PyResult<()> {
        self.with(py, |mut trial| {
            let done = trial.advance_to(at_ns);
            (trial, done)
        })
    }

    /// Advances the time while the service does not run.
    fn pause(&self, py: Python<'_>, by_ns: u64) -> PyResult<()> {
        self.with(py, |mut trial| {
            let done = trial.pause(Duration::from_nanos(by_ns));
            (trial, done)
        })
    }
}

impl Trial {
    /// Works on the trial. A component that does so from one of its own timers is refused.
    fn with(
        &self,
        py: Python<'_>,
        work: impl FnOnce(native::Trial<()>) -> (native::Trial<()>, Result<(), Cause>),
    ) -> PyResult<()> {
        let hold = || self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        let trial = hold().take();
        let trial = trial.ok_or_else(|| {
            let why = "the clock of this trial is being advanced: a component cannot advance it from a timer";
            service_error(py, why)
        })?;
        let (trial, done) = work(trial);
        *hold() = Some(trial);
        done.map_err(|cause| raised(py, cause))
    }
}

/// The calls of a journal from one record to another, as YAML with their times and, as comments, their sequence
/// numbers.
#[pyfunction]
pub(crate) fn service_export(
    py: Python<'_>,
    path: PathBuf,
    first: u64,
    last: Option<u64>,
) -> PyResult<String> {
    let failed = |error: millstream_journal::Error| service_error(py, error);
    let journal = Journal::open(&path, Options::read_only()).map_err(failed)?;
    let mut reader = journal.reader().map_err(failed)?;
    let there = reader.position()..=journal.next().map_err(failed)?;
    reader
        .seek(first.clamp(*there.start(), *there.end()))
        .map_err(failed)?;
    let mut calls = Calls::of(&journal);
    let mut text = String::new();
    while let Some(record) = reader.next().map_err(failed)? {
        let sequence = record.sequence;
        if last.is_some_and(|last| sequence > last) {
            break;
        }
        let document = calls.document(&record).map_err(|error| {
            service_error(
                py,
                context(format_args!("{}, record {sequence}", path.display()), error),
            )
        })?;
        if let Some(document) = document {
            let separator = if text.is_empty() { "" } else { "---\n" };
            text.extend([separator, &document]);
        }
    }
    Ok(text)
}

/// A hop as Python gets it: the journal, the record, its time, and the call as YAML.
type PyHop = (String, u64, String, Option<String>);

/// The chain of causes of a record, its origin last.
#[pyfunction]
#[pyo3(signature = (path, sequence, folders = Vec::new()))]
pub(crate) fn service_history(
    py: Python<'_>,
    path: PathBuf,
    sequence: u64,
    folders: Vec<PathBuf>,
) -> PyResult<Vec<PyHop>> {
    let hops = history(&path, sequence, &folders).map_err(|error| service_error(py, error))?;
    let hop = |hop: millstream_service::Hop| {
        let time = Timestamp(hop.time_ns as i64).to_string();
        (
            hop.journal,
            hop.sequence,
            time,
            hop.call.map(|call| call.to_text()),
        )
    };
    Ok(hops.into_iter().map(hop).collect())
}

/// The latencies of the calls of a journal, hop by hop, as JSON.
#[pyfunction]
pub(crate) fn service_latency(
    py: Python<'_>,
    path: PathBuf,
    first: u64,
    last: Option<u64>,
    folders: Vec<PathBuf>,
) -> PyResult<String> {
    let found = unlocked(|| latency(&path, first, last, &folders));
    let found = found.map_err(|error| service_error(py, error))?;
    serde_json::to_string(&found).map_err(|error| service_error(py, error))
}
