//! Sinks as Python sees them: byte sinks of the engine, lists, and objects of the user's own.

mod by_key;
mod bytes;
mod encode;
mod encode_step;
mod frame;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod list;
mod object;
mod outbox;
mod post_encode;
mod records;

use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::cluster::Membership;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::sink::{Forwarding, Output, Scope, Sink, Token, Transactional, Writer};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyType};

pub(crate) use by_key::{KeyedSink, file_write_by_key};
pub(crate) use bytes::{ByteSink, file_write, journal_append, queue_write, tcp_send_to};
pub(crate) use encode_step::{EncodeStep, parted};
pub(crate) use frame::append_frame;
pub(crate) use http::{http_feed, http_post, http_replies, http_reply};
#[cfg(feature = "kafka")]
pub(crate) use kafka::kafka_write;
pub(crate) use list::ListSink;
pub(crate) use outbox::outbox_sink;

use crate::batch::PyBatch;
use crate::error::usage;
use crate::gil::locked;
use crate::show::show;

/// A sink at work on one worker.
pub(crate) type OpenWriter = Box<dyn Writer<PyBatch>>;

/// Any sink of a Python flow.
#[derive(Clone)]
pub(crate) enum AnySink {
    Bytes(Arc<ByteSink>),
    Keyed(Arc<KeyedSink>),
    List(Arc<ListSink>),
    Object(Arc<Py<PyAny>>),
}

impl AnySink {
    /// Reads a sink object.
    pub(crate) fn read(sink: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = sink.cast::<ByteSink>() {
            return Ok(AnySink::Bytes(Arc::new(bytes.get().clone())));
        }
        if let Ok(keyed) = sink.cast::<KeyedSink>() {
            return Ok(AnySink::Keyed(Arc::new(keyed.get().clone())));
        }
        if let Ok(list) = sink.cast::<PyList>() {
            return Ok(AnySink::List(ListSink::of(list)));
        }
        // A sink of `ms.sink`.
        if let Some(outbox) = sink.getattr_opt(intern!(sink.py(), "_outbox"))? {
            return Self::read(&outbox);
        }
        let remedy = Self::remedy(sink)?;
        if remedy.is_none() && sink.getattr("open").is_ok_and(|open| open.is_callable()) {
            return Ok(AnySink::Object(Arc::new(sink.clone().unbind())));
        }
        let remedy = remedy.unwrap_or("it has no method open");
        let message = format!("{} is no sink: {remedy}", show(sink));
        Err(usage(sink.py(), &message))
    }

    /// What to do with what is often taken for a sink: a path and a class have a method `open` too.
    fn remedy(sink: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
        let path = sink.py().import("pathlib")?.getattr("PurePath")?;
        let remedy = if sink.is_instance_of::<PyString>() || sink.is_instance(&path)? {
            "ms.files.write makes one of a path"
        } else if sink.is_instance_of::<PyType>() {
            "it is a class: call it"
        } else if sink.hasattr("open")? {
            return Ok(None);
        } else if sink.hasattr("write")? {
            "decorate its class with ms.sink"
        } else if sink.is_callable() {
            "ms.stdout() prints each item, @ms.sink makes a sink of a function that delivers, and map calls a \
             function for each item"
        } else {
            return Ok(None);
        };
        Ok(Some(remedy))
    }

    /// The identity of this sink: several steps may write to it.
    fn identity(&self) -> usize {
        match self {
            AnySink::Bytes(sink) => sink.encoded.identity(),
            AnySink::Keyed(sink) => sink.encoded.identity(),
            AnySink::List(list) => Arc::as_ptr(list) as usize,
            AnySink::Object(object) => object.as_ptr() as usize,
        }
    }

    /// The kind and the destination, for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            AnySink::Bytes(sink) => sink.encoded.sink.describe(),
            AnySink::Keyed(sink) => sink.encoded.sink.describe(),
            AnySink::List(_) => "collected in a list".to_owned(),
            AnySink::Object(object) => locked(|py| crate::show::type_name(object.bind(py))),
        }
    }

    /// Opens the sink of step `name` for one worker.
    pub(crate) fn open(
        &self,
        name: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<OpenWriter, Cause> {
        match self {
            AnySink::Bytes(sink) => sink.encoded.open(name, worker, control),
            AnySink::Keyed(sink) => sink.encoded.open(name, worker, control),
            AnySink::List(list) => Ok(list.open(control)),
            AnySink::Object(object) => object::open(object, name, worker),
        }
    }
}

/// A sink under the name of its step.
pub(crate) struct NamedSink {
    pub(crate) name: String,
    pub(crate) sink: AnySink,
}

impl NamedSink {
    /// Replaces the sink of this name by the result of `make`.
    pub(crate) fn made(name: &str, make: &Py<PyAny>) -> Result<Self, Cause> {
        let sink = locked(|py| AnySink::read(&make.bind(py).call1((name,))?));
        Ok(NamedSink {
            name: name.to_owned(),
            sink: sink.map_err(crate::error::cause)?,
        })
    }
}

/// Calls a method of the engine's sink.
macro_rules! of_engine {
    ($sink:expr, |$engine:ident| $call:expr, else $other:expr) => {
        match &$sink {
            AnySink::Bytes(sink) => {
                let $engine = sink.encoded.engine();
                $call
            }
            AnySink::Keyed(sink) => {
                let $engine = sink.encoded.engine();
                $call
            }
            AnySink::List(_) | AnySink::Object(_) => $other,
        }
    };
}

#[warn(clippy::missing_trait_methods)]
impl Sink<PyBatch> for NamedSink {
    fn describe(&self) -> String {
        self.sink.describe()
    }
    fn open(&self, worker: usize, control: &Arc<Control>) -> Result<OpenWriter, Cause> {
        self.sink.open(&self.name, worker, control)
    }
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        of_engine!(self.sink, |sink| sink.join(membership), else None)
    }
    fn in_one_process(&self) -> bool {
        of_engine!(self.sink, |sink| sink.in_one_process(), else false)
    }
    fn output(&self, recovery: bool) -> Option<Output> {
        of_engine!(self.sink, |sink| sink.output(recovery), else None)
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
    fn skip_refused(&self, keeps: bool) -> bool {
        of_engine!(self.sink, |sink| sink.skip_refused(keeps), else false)
    }
    fn record_bytes_max(&self) -> Option<usize> {
        of_engine!(self.sink, |sink| sink.record_bytes_max(), else None)
    }
    fn over(&self, _: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<PyBatch>>> {
        // A rehearsal has lists in its place.
        None
    }
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        of_engine!(self.sink, |sink| sink.forwarding(), else None)
    }
}

impl NamedSink {
    /// The engine's sink, if it takes part in commits.
    fn of_engine(&self) -> Option<&dyn Transactional> {
        of_engine!(self.sink, |sink| sink.transactional(), else None)
    }
}

impl Transactional for NamedSink {
    fn scope(&self) -> Scope {
        self.of_engine().map_or(Scope::Path, Transactional::scope)
    }
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        match &self.sink {
            AnySink::List(list) => list.resume(tokens),
            AnySink::Object(_) => Ok(None),
            AnySink::Bytes(_) | AnySink::Keyed(_) => self
                .of_engine()
                .map_or(Ok(None), |sink| sink.resume(tokens)),
        }
    }
    fn sync(&self) -> Result<(), Cause> {
        self.of_engine().map_or(Ok(()), Transactional::sync)
    }
    fn commit(&self, epoch: u64, tokens: &[Token]) -> Result<(), Cause> {
        match &self.sink {
            AnySink::List(list) => list.commit(tokens),
            AnySink::Object(_) => Ok(()),
            AnySink::Bytes(_) | AnySink::Keyed(_) => self
                .of_engine()
                .map_or(Ok(()), |sink| sink.commit(epoch, tokens)),
        }
    }
    fn finish(&self) {
        if let Some(sink) = self.of_engine() {
            sink.finish();
        }
    }
    fn identity(&self) -> Option<usize> {
        Some(self.sink.identity())
    }
}
