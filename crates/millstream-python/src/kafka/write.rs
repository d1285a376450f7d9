//! Topics as sinks.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::framing::Frames;
use millstream_kafka::{Outgoing, Settings, write};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::message::{KafkaMessage, bytes_of};
use crate::sink::ByteSink;

/// Makes messages of items.
pub(crate) struct KafkaEncoder {
    /// Returns the key of an item.
    key: Option<Py<PyAny>>,
    /// Returns the value of an item.
    encode: Option<Py<PyAny>>,
}

impl KafkaEncoder {
    /// Appends the message of an item: the item itself if it is one, else its key and its value.
    pub(crate) fn append(&self, item: &Bound<'_, PyAny>, frames: &mut Frames) -> PyResult<()> {
        let py = item.py();
        let mut encoded = item.clone();
        if let Some(encode) = &self.encode {
            encoded = encode.bind(py).call1((item,))?;
        }
        let mut failure = None;
        let appended = match encoded.cast::<KafkaMessage>() {
            Ok(message) => frames.append(|out| failure = message.get().append(out).err()),
            Err(_) => {
                let key = match &self.key {
                    Some(key) => bytes_of("the key", &key.bind(py).call1((item,))?)?,
                    None => None,
                };
                let value = bytes_of("the value of a message", &encoded)?;
                let outgoing = Outgoing {
                    key,
                    value,
                    ..Outgoing::default()
                };
                frames.append(|out| outgoing.encode(out))
            }
        };
        appended.map_err(|error| PyValueError::new_err(error.to_string()))?;
        failure.map_or(Ok(()), Err)
    }
}

/// Writes items to a topic.
#[pyfunction]
#[pyo3(signature = (servers, topic, *, key, encode, exactly_once, settings, max_bytes, max_age))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn kafka_write(
    servers: &str,
    topic: &str,
    key: Option<Py<PyAny>>,
    encode: Option<Py<PyAny>>,
    exactly_once: bool,
    settings: Vec<(String, String)>,
    max_bytes: Option<u64>,
    max_age: Option<f64>,
) -> PyResult<ByteSink> {
    let mut sink = write(servers, topic).settings(Settings::from_iter(settings));
    if !exactly_once {
        sink = sink.at_least_once();
    }
    if let Some(bytes) = max_bytes {
        sink = sink.max_bytes(bytes);
    }
    if let Some(seconds) = max_age {
        sink = sink.max_age(Duration::try_from_secs_f64(seconds)?);
    }
    let encoder = Arc::new(KafkaEncoder { key, encode });
    Ok(ByteSink::kafka(sink.frames(), encoder))
}
