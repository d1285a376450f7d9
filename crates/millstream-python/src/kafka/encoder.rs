//! From objects to messages: the step before a sink.

use millstream_flow::framing::Frames;
use millstream_kafka::Outgoing;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::message::{KafkaMessage, bytes_of};

/// Makes messages of items.
pub(crate) struct KafkaEncoder {
    /// Returns the key of an item.
    pub(crate) key: Option<Py<PyAny>>,
    /// Returns the value of an item.
    pub(crate) encode: Option<Py<PyAny>>,
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
