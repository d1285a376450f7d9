//! `KafkaMessage`: a message in its bytes; its attributes are made when they are asked for.

use millstream_kafka::{Headers, Outgoing, View};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::show::show;

/// A message of a topic, or one to be written.
///
/// Args:
///     value: bytes or ``str``; None is a tombstone.
///     key: bytes or ``str``; None for a message without a key.
///     topic: the topic to which it is written; None is the topic of the sink.
///     partition: the partition to which it is written; None lets the key decide.
///     time: seconds since 1970; None is the time of delivery.
///     headers: pairs of a name and bytes, ``str`` or None.
///
/// Raises:
///     TypeError: a value, a key or a header is neither bytes nor ``str``.
///     ValueError: the partition is negative.
///
/// Example:
///     >>> import millstream as ms
///     >>> message = ms.kafka.Message("42", key="a", headers=[("unit", b"m")])
///     >>> message.key, message.value, message.headers, message.offset
///     (b'a', b'42', [('unit', b'm')], None)
#[pyclass(frozen, freelist = 1024, module = "millstream._millstream")]
pub(crate) struct KafkaMessage {
    frame: Vec<u8>,
}

impl KafkaMessage {
    /// Makes a message of the bytes of one that was read.
    pub(crate) fn read(frame: &[u8]) -> PyResult<Self> {
        let view = View::of(frame).map_err(damaged)?;
        view.check_headers().map_err(damaged)?;
        KafkaMessage::of(frame)
    }

    /// Makes a message of its bytes, whatever they lack.
    pub(crate) fn of(frame: &[u8]) -> PyResult<Self> {
        View::of(frame).map_err(damaged)?;
        Ok(KafkaMessage {
            frame: frame.to_vec(),
        })
    }

    /// The time in milliseconds since 1970.
    pub(super) fn time_ms(&self) -> PyResult<Option<i64>> {
        Ok(self.view()?.time_ms())
    }

    fn view(&self) -> PyResult<View<'_>> {
        View::of(&self.frame).map_err(damaged)
    }

    /// Appends the message as a sink writes it. One that was read goes to the topic of the sink.
    pub(crate) fn append(&self, out: &mut Vec<u8>) -> PyResult<()> {
        let view = self.view()?;
        if view.offset() < 0 {
            out.extend_from_slice(&self.frame);
            return Ok(());
        }
        let outgoing = Outgoing {
            topic: None,
            partition: None,
            time_ms: view.time_ms(),
            key: view.key().map(<[u8]>::to_vec),
            value: view.value().map(<[u8]>::to_vec),
            headers: view.headers().map_err(damaged)?,
        };
        outgoing.encode(out);
        Ok(())
    }
}

fn damaged(error: millstream_kafka::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the bytes of a key, a value or a header.
pub(super) fn bytes_of(what: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if given.is_none() {
        return Ok(None);
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    if let Ok(text) = given.extract::<&str>() {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    if let Ok(record) = given.cast::<crate::record::Record>() {
        return Ok(Some(record.get().as_bytes().to_vec()));
    }
    let shown = show(given);
    Err(PyTypeError::new_err(format!(
        "{what} is bytes, str or None, not {shown}"
    )))
}

fn headers_of(given: &Bound<'_, PyAny>) -> PyResult<Headers> {
    let mut headers = Headers::new();
    for pair in given.try_iter()? {
        let (name, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
        headers.push((name, bytes_of("the value of a header", &value)?));
    }
    Ok(headers)
}

#[pymethods]
impl KafkaMessage {
    #[new]
    #[pyo3(signature = (value, key=None, topic=None, partition=None, time=None, headers=None))]
    fn new(
        value: &Bound<'_, PyAny>,
        key: Option<&Bound<'_, PyAny>>,
        topic: Option<String>,
        partition: Option<i32>,
        time: Option<f64>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if partition.is_some_and(|partition| partition < 0) {
            return Err(PyValueError::new_err("a partition is a number from 0"));
        }
        let outgoing = Outgoing {
            topic,
            partition,
            time_ms: time.map(|seconds| (seconds * 1000.0).round() as i64),
            key: key.map_or(Ok(None), |key| bytes_of("the key", key))?,
            value: bytes_of("the value", value)?,
            headers: headers.map_or(Ok(Headers::new()), headers_of)?,
        };
        let mut frame = Vec::new();
        outgoing.encode(&mut frame);
        Ok(KafkaMessage { frame })
    }

    /// The key as bytes, or None.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.view()?.key().map(|key| PyBytes::new(py, key)))
    }

    /// The value as bytes, or None for a tombstone.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.view()?.value().map(|value| PyBytes::new(py, value)))
    }

    /// The topic, or None for that of the sink.
    #[getter]
    fn topic(&self) -> PyResult<Option<&str>> {
        Ok(Some(self.view()?.topic()).filter(|topic| !topic.is_empty()))
    }

    /// The partition, or None.
    #[getter]
    fn partition(&self) -> PyResult<Option<i32>> {
        Ok(Some(self.view()?.partition()).filter(|partition| *partition >= 0))
    }

    /// The offset, or None for a message that was not read.
    #[getter]
    fn offset(&self) -> PyResult<Option<i64>> {
        Ok(Some(self.view()?.offset()).filter(|offset| *offset >= 0))
    }

    /// The time in seconds since 1970, or None.
    #[getter]
    fn time(&self) -> PyResult<Option<f64>> {
        Ok(self.view()?.time_ms().map(|millis| millis as f64 / 1000.0))
    }

    /// The headers: a list of pairs of a name and bytes or None.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let headers = self.view()?.headers().map_err(damaged)?;
        let pairs = headers.iter().map(|(name, value)| {
            let value = value.as_ref().map(|value| PyBytes::new(py, value));
            (name, value).into_pyobject(py)
        });
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<KafkaMessage>();
        other.is_ok_and(|other| other.get().frame == self.frame)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyBytes::new(py, &self.frame).hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let view = self.view()?;
        let shown = |part: Option<&[u8]>| match part {
            Some(bytes) => show(PyBytes::new(py, bytes).as_any()),
            None => "None".to_owned(),
        };
        let mut text = format!("Message({}, key={}", shown(view.value()), shown(view.key()));
        if !view.topic().is_empty() {
            text.push_str(&format!(", topic={:?}", view.topic()));
        }
        if view.partition() >= 0 {
            text.push_str(&format!(", partition={}", view.partition()));
        }
        if view.offset() >= 0 {
            text.push_str(&format!(", offset={}", view.offset()));
        }
        text.push(')');
        Ok(text)
    }

    /// Makes a message of the bytes of another one.
    #[staticmethod]
    fn _of(frame: &[u8]) -> PyResult<Self> {
        KafkaMessage::of(frame)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let class = py.get_type::<KafkaMessage>();
        let frame = PyBytes::new(py, &self.frame);
        (class.getattr("_of")?, (frame,)).into_pyobject(py)
    }
}
