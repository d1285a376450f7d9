//! Tests of Python components as YAML files, and journals as YAML.

use std::path::PathBuf;

use millstream::journal::{Journal, Options};
use millstream::service::testing::{Mode, check};
use millstream::service::{Calls, history, latency};
use millstream::wire::{Call, Cause, Record, Timestamp};
use pyo3::prelude::*;

use super::interface::Interface;
use super::outlet::Recorder;
use super::runner::{Clock, dispatch};
use crate::error::{cause, service_error, service_failed_test};
use crate::gil::unlocked;

/// The interfaces of a component and its methods for each.
type Made = Vec<(Py<Interface>, Vec<Py<PyAny>>)>;

/// Runs the test of a folder. `make(recorder, clock)` makes a component and gives its interfaces and methods. Returns how many runs passed, the
/// differences by file, and the files that were rewritten.
#[pyfunction]
#[expect(
    clippy::type_complexity,
    reason = "three lists, taken apart at once by the package"
)]
pub(crate) fn service_test(
    py: Python<'_>,
    folder: PathBuf,
    inputs: Vec<Py<Interface>>,
    outputs: Vec<Py<Interface>>,
    update: bool,
    agitate: bool,
    make: &Bound<'_, PyAny>,
) -> PyResult<(usize, Vec<(PathBuf, String)>, Vec<PathBuf>)> {
    let schemas = |interfaces: &[Py<Interface>]| -> Vec<_> {
        interfaces
            .iter()
            .map(|interface| interface.get().schema.clone())
            .collect()
    };
    let run = |setup: &[Call], input: &[Call]| -> Result<Vec<Call>, Cause> {
        let recorder = Bound::new(
            py,
            Recorder {
                recorder: Default::default(),
            },
        )
        .map_err(cause)?;
        let clock = millstream::service::Clock::of_test();
        let py_clock = Clock {
            clock: clock.clone(),
        };
        let made: Made = make
            .call1((&recorder, py_clock))
            .and_then(|made| made.extract())
            .map_err(cause)?;
        let mut interfaces = Vec::new();
        for (interface, methods) in made {
            let schema = interface.get().schema.clone();
            interfaces.push((schema, dispatch::<()>(interface, methods)));
        }
        let mut call = |call: &Call| -> Result<(), Cause> {
            let known = interfaces
                .iter_mut()
                .find(|(schema, _)| schema.method_named(&call.method).is_ok());
            let (schema, dispatch) = known.ok_or("the component has no such method")?;
            call.at.into_iter().for_each(|at| clock.set(at));
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
    let mode = Mode { update, agitate };
    let outcome = check(&folder, &schemas(&inputs), &schemas(&outputs), mode, run);
    let outcome = outcome.map_err(|error| service_failed_test(py, error))?;
    Ok((outcome.passed, outcome.failed, outcome.updated))
}

/// The calls of a journal from one record to another, as YAML with their times and, as comments, their sequence numbers.
#[pyfunction]
pub(crate) fn service_export(
    py: Python<'_>,
    path: PathBuf,
    first: u64,
    last: Option<u64>,
) -> PyResult<String> {
    let failed = |error: millstream::journal::Error| service_error(py, &error);
    let journal = Journal::open(&path, Options::read_only()).map_err(failed)?;
    let mut reader = journal.reader().map_err(failed)?;
    let there = reader.position()..=journal.next().map_err(failed)?;
    reader
        .seek(first.clamp(*there.start(), *there.end()))
        .map_err(failed)?;
    let (mut calls, mut text) = (Calls::of(&journal), String::new());
    while let Some(record) = reader.next().map_err(failed)? {
        let sequence = record.sequence;
        if last.is_some_and(|last| sequence > last) {
            break;
        }
        let document = calls.document(&record).map_err(|error| {
            service_error(
                py,
                &format!("{}, record {sequence}: {error}", path.display()),
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

/// The way of a message, its origin last.
#[pyfunction]
#[pyo3(signature = (path, sequence, folders = Vec::new()))]
pub(crate) fn service_history(
    py: Python<'_>,
    path: PathBuf,
    sequence: u64,
    folders: Vec<PathBuf>,
) -> PyResult<Vec<PyHop>> {
    let hops = history(&path, sequence, &folders).map_err(|error| service_error(py, &error))?;
    let hop = |hop: millstream::service::Hop| {
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

/// How long the calls of a journal took, hop by hop, as JSON.
#[pyfunction]
pub(crate) fn service_latency(
    py: Python<'_>,
    path: PathBuf,
    first: u64,
    last: Option<u64>,
    folders: Vec<PathBuf>,
) -> PyResult<String> {
    let found = unlocked(|| latency(&path, first, last, &folders));
    let found = found.map_err(|error| service_error(py, &error))?;
    serde_json::to_string(&found).map_err(|error| service_error(py, &error))
}
