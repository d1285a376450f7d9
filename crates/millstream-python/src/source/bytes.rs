//! The engine's byte sources, TCP, files and queues, followed by a decoder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::batch::Batch;
use millstream_flow::directory;
use millstream_flow::durable::{self, Retain};
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::metrics::Lag;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::{Flow, Pipe, SourceExt, files, forward_source, journals, tcp};
use millstream_queue::flow as queues;
use pyo3::prelude::*;

use super::decode::{Decode, DecodeStep};
use super::reading::{Reading, compression, framing};
use crate::batch::PyBatch;
use crate::error::usage;
use crate::gil::{locked, unlocked};

/// A source of bytes.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct ByteSource {
    source: Arc<dyn Source<Frames>>,
    /// The same, of requests.
    http: Option<Box<millstream_http::Listen>>,
    /// Why its input is not recorded, if it is durable already.
    durable: Option<&'static str>,
    decode: Decode,
}

#[pymethods]
impl ByteSource {
    fn __repr__(&self) -> String {
        format!("<source {}>", self.source.describe())
    }

    /// This source, its input recorded before it is processed.
    #[pyo3(signature = (keep=None))]
    fn durable<'py>(
        source: &Bound<'py, Self>,
        keep: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(what) = source.get().durable {
            return Err(usage(source.py(), what));
        }
        super::durable::of(source, keep)
    }
}

impl ByteSource {
    /// A source of frames, with what makes items of them.
    pub(crate) fn new(source: impl Source<Frames>, decode: Decode) -> Self {
        ByteSource {
            source: Arc::new(source),
            http: None,
            durable: None,
            decode,
        }
    }

    /// The same, which is durable already, as `why` says.
    fn durable_already(self, why: &'static str) -> Self {
        ByteSource {
            durable: Some(why),
            ..self
        }
    }

    /// A source of requests.
    pub(super) fn of_http(source: millstream_http::Listen, decode: Decode) -> Self {
        let why = "requests are durable already: with a state directory each is recorded before it is acknowledged";
        ByteSource {
            http: Some(Box::new(source.clone())),
            ..Self::new(source, decode).durable_already(why)
        }
    }

    /// The sink of the replies to the requests of this source.
    pub(crate) fn replies(&self) -> Result<millstream_http::Replies, Cause> {
        match &self.http {
            Some(source) => source.replies(),
            None => Err(format!("{} is no source of requests", self.source.describe()).into()),
        }
    }

    /// The source. Its requests are checked by the decoder of the flow where an item that it refuses would end the
    /// flow: what is acknowledged can be read.
    fn checked(&self, reading: &Reading<'_>) -> Arc<dyn Source<Frames>> {
        match (&self.http, self.decode.clone()) {
            (Some(_), Decode::Bytes) | (None, _) => Arc::clone(&self.source),
            (Some(_), _) if reading.on_error.tolerant() => Arc::clone(&self.source),
            (Some(source), decode) => Arc::new(
                (**source)
                    .clone()
                    .check_item(move |item| decode.check(item)),
            ),
        }
    }

    /// Adds the source and its decoder.
    pub(crate) fn add(
        &self,
        flow: &Flow,
        durable: Option<Retain>,
        reading: &Reading<'_>,
    ) -> Pipe<PyBatch> {
        let source = self.checked(reading);
        let size = reading.batch_size;
        let frames = match durable {
            Some(keep) => {
                let source = Unlocked(source.durable().keep(keep));
                flow.source(reading.name, source.batch_size(size))
            }
            None => flow.source(reading.name, Unlocked(source).batch_size(size)),
        };
        let name = reading.name;
        let decode = self.decode.clone();
        let own = reading.on_error.clone();
        let source = name.to_owned();
        let decoded = frames.step("decode", &format!("{name}.decode"), move |making| {
            DecodeStep::make(&decode, &own, &source, making)
        });
        reading.on_error.of(decoded)
    }
}

/// A source that is read without the interpreter lock.
pub(super) struct Unlocked<S>(pub(super) S);

#[warn(clippy::missing_trait_methods)]
impl<B: Batch, S: Source<B>> Source<B> for Unlocked<S> {
    forward_source!(this => this.0; describe partitions settings resumable growing);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        let opened = self.0.open(partition, resume, io)?;
        Ok(Box::new(UnlockedPartition(Some(opened))))
    }
    fn over(
        &self,
        frames: Arc<dyn Source<Frames>>,
        kind: durable::Kind,
    ) -> Option<Arc<dyn Source<B>>> {
        self.0.over(frames, kind)
    }
}

/// A partition until it is closed.
struct UnlockedPartition<B>(Option<Box<dyn Partition<B>>>);

impl<B> UnlockedPartition<B> {
    fn open(&self) -> Result<&dyn Partition<B>, Cause> {
        let open = self.0.as_deref();
        open.ok_or_else(|| "the partition is closed".into())
    }
}

#[warn(clippy::missing_trait_methods)]
impl<B> Partition<B> for UnlockedPartition<B> {
    fn next_batch(&mut self, batch: &mut B, events: &mut Events<'_>) -> Result<Next, Cause> {
        match &mut self.0 {
            Some(partition) => unlocked(|| partition.next_batch(batch, events)),
            None => Ok(Next::End),
        }
    }
    fn next_awake(&self) -> Option<u64> {
        self.open().ok()?.next_awake()
    }
    fn lag(&self) -> Option<Lag> {
        let partition = self.open().ok()?;
        unlocked(|| partition.lag())
    }
    fn position(&self) -> Result<Position, Cause> {
        self.open()?.position()
    }
}

impl<B> Drop for UnlockedPartition<B> {
    fn drop(&mut self) {
        // Its threads may wait for the lock, and it waits for them.
        let partition = self.0.take();
        unlocked(move || drop(partition));
    }
}

/// Listens on an address for connections to read frames from.
#[pyfunction]
#[pyo3(signature = (address, *, framing, max_frame, connections, max_connections, decode, on_bound))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn tcp_listen(
    py: Python<'_>,
    address: &str,
    framing: &str,
    max_frame: usize,
    connections: Option<usize>,
    max_connections: usize,
    decode: Option<&Bound<'_, PyAny>>,
    on_bound: Option<Py<PyAny>>,
) -> PyResult<ByteSource> {
    if max_connections == 0 {
        return Err(usage(py, "max_connections is 1 or more, not 0"));
    }
    let mut source = tcp::listen(address)
        .framing(self::framing(py, framing)?)
        .max_frame(max_frame)
        .max_connections(max_connections);
    if let Some(count) = connections {
        source = source.connections(count);
    }
    if let Some(call) = on_bound.map(Arc::new) {
        source = source.on_bound(move |address| {
            locked(|py| {
                let address = (address.ip().to_string(), address.port());
                if let Err(error) = call.bind(py).call1(address) {
                    error.write_unraisable(py, Some(call.bind(py)));
                }
            });
        });
    }
    Ok(ByteSource::new(source, Decode::read(decode)?))
}

/// Connects to an address to read frames from.
#[pyfunction]
#[pyo3(signature = (address, *, framing, max_frame, decode))]
pub(crate) fn tcp_connect(
    py: Python<'_>,
    address: &str,
    framing: &str,
    max_frame: usize,
    decode: Option<&Bound<'_, PyAny>>,
) -> PyResult<ByteSource> {
    let source = tcp::connect(address)
        .framing(self::framing(py, framing)?)
        .max_frame(max_frame);
    Ok(ByteSource::new(source, Decode::read(decode)?))
}

/// Files to read frames from; each is a partition.
#[pyfunction]
#[pyo3(signature = (paths, *, framing, max_frame, decode, position, compression, local))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn file_read(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    framing: &str,
    max_frame: usize,
    decode: Option<&Bound<'_, PyAny>>,
    position: u64,
    compression: Option<&str>,
    local: bool,
) -> PyResult<ByteSource> {
    let source = files::read(paths)
        .framing(self::framing(py, framing)?)
        .max_frame(max_frame)
        .compression(self::compression(py, compression)?)
        .from_position(position)
        .local(local);
    Ok(ByteSource::new(source, Decode::read(decode)?))
}

/// The files of a directory; `follow` in seconds.
#[pyfunction]
#[pyo3(signature = (path, pattern, *, partitions, follow, framing, max_frame, decode, compression, local))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn directory_read(
    py: Python<'_>,
    path: PathBuf,
    pattern: &str,
    partitions: usize,
    follow: Option<f64>,
    framing: &str,
    max_frame: usize,
    decode: Option<&Bound<'_, PyAny>>,
    compression: Option<&str>,
    local: bool,
) -> PyResult<ByteSource> {
    let mut source = directory::frames(path, pattern)
        .partitions(partitions)
        .local(local)
        .framing(self::framing(py, framing)?)
        .max_frame(max_frame)
        .compression(self::compression(py, compression)?);
    if let Some(poll) = follow {
        source = source.follow(Duration::try_from_secs_f64(poll)?);
    }
    let why = "files are durable already: with a state directory each is read on where it was";
    Ok(ByteSource::new(source, Decode::read(decode)?).durable_already(why))
}

/// A journal to read records from, each a frame. `start` is a number, and `time_ns` a time, of which one is given, or
/// neither for the end as it is when the flow begins.
#[pyfunction]
#[pyo3(signature = (path, *, start, time_ns, stop, follow, cursor, decode, local))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn journal_read(
    path: PathBuf,
    start: Option<u64>,
    time_ns: Option<u64>,
    stop: Option<u64>,
    follow: bool,
    cursor: Option<&str>,
    decode: Option<&Bound<'_, PyAny>>,
    local: bool,
) -> PyResult<ByteSource> {
    let source = journals::read(path).local(local);
    let mut source = match (start, time_ns) {
        (Some(sequence), _) => source.from_sequence(sequence),
        (None, Some(time_ns)) => source.from_time(time_ns),
        (None, None) => source.from_next(),
    };
    if let Some(sequence) = stop {
        source = source.to_sequence(sequence);
    }
    if follow {
        source = source.follow();
    }
    if let Some(name) = cursor {
        source = source.cursor(name);
    }
    Ok(ByteSource::new(source, Decode::read(decode)?))
}

/// Queues to take items from; each is a partition.
#[pyfunction]
#[pyo3(signature = (place, names, *, decode, until_empty))]
pub(crate) fn queue_read(
    place: PathBuf,
    names: Vec<String>,
    decode: Option<&Bound<'_, PyAny>>,
    until_empty: bool,
) -> PyResult<ByteSource> {
    let mut source = queues::read_all(&place, names);
    if until_empty {
        source = source.until_empty();
    }
    let why = "a queue is durable already: with a state directory each item is processed once";
    Ok(ByteSource::new(source, Decode::read(decode)?).durable_already(why))
}

/// Calls `call` with the address that a server is bound to.
pub(crate) fn bound_call(call: Py<PyAny>) -> impl Fn(&str) + Send + Sync + 'static {
    move |address| {
        locked(|py| {
            if let Err(error) = call.bind(py).call1((address,)) {
                error.write_unraisable(py, Some(call.bind(py)));
            }
        });
    }
}
