//! The engine's byte sinks: TCP, files and queues.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::framing::{Frames, Framing};
use millstream_flow::outbox::Outbox;
use millstream_flow::sink::Sink;
use millstream_flow::{files, journals, tcp};
use millstream_queue::flow as queues;
use pyo3::prelude::*;

use super::encode::{EncodedSink, Encoder, Otherwise};
use super::post_encode::PostEncoder;
use super::records::{Decode, Records};
use crate::error::usage;
use crate::journal::sync_of;
use crate::source::{compression, framing};

/// A sink of bytes.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct ByteSink {
    pub(super) encoded: EncodedSink<Frames>,
    records: Records,
}

#[pymethods]
impl ByteSink {
    fn __repr__(&self) -> String {
        format!("<sink {}>", self.encoded.sink.describe())
    }
}

impl ByteSink {
    fn new(sink: impl Sink<Frames>, framing: &Framing, encode: Option<Py<PyAny>>) -> Self {
        Self::with(sink, encode, Otherwise::of(Some(framing)))
    }

    fn with(sink: impl Sink<Frames>, encode: Option<Py<PyAny>>, otherwise: Otherwise) -> Self {
        Self::of(
            Arc::new(sink),
            Encoder::by(encode, otherwise),
            Records::Bytes,
        )
    }

    fn of(sink: Arc<dyn Sink<Frames>>, encoder: Encoder, records: Records) -> Self {
        ByteSink {
            encoded: EncodedSink { sink, encoder },
            records,
        }
    }

    /// A sink of messages of Kafka.
    #[cfg(feature = "kafka")]
    pub(crate) fn kafka(
        sink: Arc<dyn Sink<Frames>>,
        messages: Arc<crate::kafka::KafkaEncoder>,
    ) -> Self {
        let encoder = Encoder {
            messages: Some(messages),
            ..Encoder::of_frames()
        };
        Self::of(sink, encoder, Records::Messages)
    }

    /// A sink with an outbox, whose records are saved items unless there is an encoder.
    pub(super) fn of_outbox(
        outbox: Outbox,
        encode: Option<Py<PyAny>>,
        decode: Arc<Decode>,
    ) -> Self {
        ByteSink {
            records: Records::Outbox(decode),
            ..Self::with(outbox, encode, Otherwise::Saved)
        }
    }

    /// A sink that posts, with its outbox.
    pub(super) fn of_post(outbox: Outbox, encoder: PostEncoder) -> Self {
        let encoder = Encoder {
            posted: Some(encoder),
            ..Encoder::of_frames()
        };
        Self::of(Arc::new(outbox), encoder, Records::Posted)
    }

    /// A feed for browsers.
    pub(super) fn of_feed(feed: millstream_http::Feed, encode: Py<PyAny>) -> Self {
        Self::with(feed, Some(encode), Otherwise::Refused)
    }

    /// Replies to the requests of a source.
    pub(super) fn of_replies(replies: millstream_http::Replies, encode: Py<PyAny>) -> Self {
        Self::with(replies, Some(encode), Otherwise::Refused)
    }

    /// The same sink for frames, and the encoder that makes them.
    pub(super) fn parted(&self) -> (Encoder, Self) {
        let (encoder, encoded) = self.encoded.parted();
        let records = self.records.clone();
        (encoder, ByteSink { encoded, records })
    }

    /// Makes the item of a record that its destination has refused.
    pub(crate) fn item(&self, py: Python<'_>, record: &[u8]) -> Result<Py<PyAny>, Cause> {
        self.records.item(py, record)
    }
}

/// A TCP connection to write frames to.
#[pyfunction]
#[pyo3(signature = (address, *, framing, encode, reconnect, numbered, connect_timeout))]
pub(crate) fn tcp_send_to(
    py: Python<'_>,
    address: &str,
    framing: &str,
    encode: Option<Py<PyAny>>,
    reconnect: Option<f64>,
    numbered: bool,
    connect_timeout: f64,
) -> PyResult<ByteSink> {
    let rule = self::framing(py, framing)?;
    let mut sink = tcp::send_to(address).framing(rule.clone());
    sink = sink.connect_timeout(Duration::try_from_secs_f64(connect_timeout)?);
    if let Some(limit) = reconnect {
        sink = sink.reconnect(Duration::try_from_secs_f64(limit)?);
    }
    if !numbered {
        return Ok(ByteSink::new(sink, &rule, encode));
    }
    if rule == Framing::Lines {
        return Err(usage(
            py,
            "numbered messages need another framing than lines: a number may contain a line end",
        ));
    }
    Ok(ByteSink::new(sink.numbered(), &rule, encode))
}

/// A journal to append to, each item a record.
#[pyfunction]
#[pyo3(signature = (path, *, encode, sync))]
pub(crate) fn journal_append(
    path: PathBuf,
    encode: Option<Py<PyAny>>,
    sync: Option<f64>,
) -> PyResult<ByteSink> {
    let sink = journals::append(path).sync(sync_of(sync)?);
    Ok(ByteSink::with(sink, encode, Otherwise::Refused))
}

/// A file to write frames to, which begins with `preamble`; without a framing they are written as they are.
#[pyfunction]
#[pyo3(signature = (path, *, framing, encode, preamble=None, compression))]
pub(crate) fn file_write(
    py: Python<'_>,
    path: PathBuf,
    framing: Option<&str>,
    encode: Option<Py<PyAny>>,
    preamble: Option<&[u8]>,
    compression: Option<&str>,
) -> PyResult<ByteSink> {
    let sink = files::write(path)
        .preamble(preamble.unwrap_or_default())
        .compression(self::compression(py, compression)?);
    let Some(framing) = framing else {
        return Ok(ByteSink::with(sink.raw(), encode, Otherwise::Refused));
    };
    let rule = self::framing(py, framing)?;
    Ok(ByteSink::new(sink.framing(rule.clone()), &rule, encode))
}

/// A queue to put items into.
#[pyfunction]
#[pyo3(signature = (place, name, *, encode))]
pub(crate) fn queue_write(place: PathBuf, name: &str, encode: Option<Py<PyAny>>) -> ByteSink {
    ByteSink::new(queues::write(&place, name), &Framing::U32, encode)
}
