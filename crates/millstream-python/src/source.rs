//! Sources as Python sees them: byte sources of the engine, scripts for tests, and objects of the
//! user's own.

mod bytes;
mod commits;
mod csv;
mod decode;
mod durable;
mod http;
mod io;
#[cfg(feature = "kafka")]
mod kafka;
mod object;
mod reading;
mod script;
mod undecoded;

use millstream_flow::SourceExt;
use millstream_flow::durable::Retain;
use millstream_flow::{Flow, Pipe};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use bytes::Unlocked;
pub(crate) use bytes::{
    ByteSource, bound_call, directory_read, file_read, journal_read, queue_read, tcp_connect,
    tcp_listen,
};
pub(crate) use csv::{CsvSource, csv_directory, csv_read};
pub(crate) use durable::DurableSource;
pub(crate) use http::{http_listen, http_received};
pub(crate) use io::SourceIo;
#[cfg(feature = "kafka")]
pub(crate) use kafka::kafka_read;
pub(crate) use object::saved_positions;
pub(crate) use reading::{Reading, batch_size, compression, framing};
pub(crate) use script::Script;

use crate::batch::PyBatch;
use crate::error::usage;
use crate::show::show;

/// Adds any source to a flow.
pub(crate) fn add(
    flow: &Flow,
    source: &Bound<'_, PyAny>,
    reading: &Reading<'_>,
) -> PyResult<Pipe<PyBatch>> {
    let name = reading.name;
    let batch_size = reading.batch_size;
    if let Ok(durable) = source.cast::<DurableSource>() {
        let source = durable.get().source.bind(source.py());
        let keep = durable.get().keep;
        return add_durable(flow, source, keep, reading);
    }
    if let Ok(bytes) = source.cast::<ByteSource>() {
        return Ok(bytes.get().add(flow, None, reading));
    }
    if let Ok(rows) = source.cast::<CsvSource>() {
        return Ok(rows.get().add(flow, reading));
    }
    if let Ok(script) = source.cast::<Script>() {
        return Ok(flow.source(name, script.get().clone().batch_size(batch_size)));
    }
    if source.getattr("open").is_ok_and(|open| open.is_callable()) {
        let object = object::ObjectSource::new(name, source)?;
        let pipe = flow.source(name, object.batch_size(batch_size));
        return with_undecoded(source, pipe, reading);
    }
    Err(no_source(source))
}

/// Adds a source whose input is recorded.
fn add_durable(
    flow: &Flow,
    source: &Bound<'_, PyAny>,
    keep: Retain,
    reading: &Reading<'_>,
) -> PyResult<Pipe<PyBatch>> {
    let name = reading.name;
    let batch_size = reading.batch_size;
    if let Ok(bytes) = source.cast::<ByteSource>() {
        return Ok(bytes.get().add(flow, Some(keep), reading));
    }
    // The interpreter is not held while a batch is written to disk.
    if let Ok(script) = source.cast::<Script>() {
        let script = script.get().clone().durable().keep(keep);
        return Ok(flow.source(name, Unlocked(script).batch_size(batch_size)));
    }
    if source.getattr("open").is_ok_and(|open| open.is_callable()) {
        let object = object::ObjectSource::new(name, source)?;
        let object = Unlocked(object.durable().keep(keep));
        let pipe = flow.source(name, object.batch_size(batch_size));
        return with_undecoded(source, pipe, reading);
    }
    Err(no_source(source))
}

/// The items of a source written in Python; if its input may be undecodable, its `on_error` has been applied.
fn with_undecoded(
    source: &Bound<'_, PyAny>,
    pipe: Pipe<PyBatch>,
    reading: &Reading<'_>,
) -> PyResult<Pipe<PyBatch>> {
    let undecoded = source.getattr_opt(intern!(source.py(), "_undecoded"))?;
    if undecoded.map_or(Ok(false), |yes| yes.is_truthy())? {
        Ok(undecoded::add(&pipe, reading))
    } else {
        Ok(pipe)
    }
}

fn no_source(source: &Bound<'_, PyAny>) -> PyErr {
    let remedy = if source.is_instance_of::<PyString>() || source.try_iter().is_err() {
        "it has no method open"
    } else {
        "ms.testing.items makes one of a list, ms.generate of a function that returns an iterable"
    };
    let message = format!("{} is no source: {remedy}", show(source));
    usage(source.py(), &message)
}
