//! Topics of Kafka as sources.

use std::collections::BTreeMap;

use millstream_kafka::{End, Start, read};
use pyo3::prelude::*;

use super::bytes::ByteSource;
use super::decode::Decode;
use crate::kafka::login;

/// Reads topics. Of `start` and `start_ms` and `offsets` one is given; the same for `end`.
#[pyfunction]
#[pyo3(signature = (servers, topics, *, start, start_ms, offsets, end, end_ms, group, settings, token, values, decode, decode_key))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn kafka_read(
    servers: &str,
    topics: Vec<String>,
    start: Option<&str>,
    start_ms: Option<i64>,
    offsets: Option<Vec<(String, i32, i64)>>,
    end: Option<&str>,
    end_ms: Option<i64>,
    group: Option<&str>,
    settings: Vec<(String, String)>,
    token: Option<Py<PyAny>>,
    values: bool,
    decode: Option<&Bound<'_, PyAny>>,
    decode_key: Option<&Bound<'_, PyAny>>,
) -> PyResult<ByteSource> {
    let start = match (start, start_ms, offsets) {
        (_, Some(time_ms), _) => Start::Time(time_ms),
        (_, _, Some(offsets)) => Start::Offsets(by_partition(offsets)),
        (Some("latest"), ..) => Start::Latest,
        (Some("group"), ..) => Start::Group,
        _ => Start::Earliest,
    };
    let end = match (end, end_ms) {
        (_, Some(time_ms)) => End::Time(time_ms),
        (Some(_), _) => End::Latest,
        (None, None) => End::Never,
    };
    let settings = login(settings, token);
    let mut source = read(servers, topics)
        .start(start)
        .end(end)
        .settings(settings);
    if let Some(group) = group {
        source = source.group(group);
    }
    if decode_key.is_some() {
        let decoders = (Decode::read(decode_key)?, Decode::read(decode)?);
        return Ok(ByteSource::new(source, Decode::Pair(Box::new(decoders))));
    }
    Ok(match decode {
        // A value that cannot be decoded is handled as the message that it is of.
        Some(_) => ByteSource::new(source, Decode::Content(Box::new(Decode::read(decode)?))),
        None if values => ByteSource::new(source.values(), Decode::Value),
        None => ByteSource::new(source, Decode::Message),
    })
}

fn by_partition(offsets: Vec<(String, i32, i64)>) -> BTreeMap<(String, i32), i64> {
    let offsets = offsets.into_iter();
    offsets
        .map(|(topic, partition, offset)| ((topic, partition), offset))
        .collect()
}
