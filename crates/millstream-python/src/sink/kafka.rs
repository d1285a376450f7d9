//! Topics of Kafka as sinks.

use std::sync::Arc;
use std::time::Duration;

use millstream_kafka::write;
use pyo3::prelude::*;

use super::bytes::ByteSink;
use crate::kafka::{KafkaEncoder, login};

/// Writes items to a topic.
#[pyfunction]
#[pyo3(signature = (servers, topic, *, key, encode, exactly_once, settings, token, max_bytes, max_age))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn kafka_write(
    servers: &str,
    topic: &str,
    key: Option<Py<PyAny>>,
    encode: Option<Py<PyAny>>,
    exactly_once: bool,
    settings: Vec<(String, String)>,
    token: Option<Py<PyAny>>,
    max_bytes: Option<u64>,
    max_age: Option<f64>,
) -> PyResult<ByteSink> {
    let mut sink = write(servers, topic).settings(login(settings, token));
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
