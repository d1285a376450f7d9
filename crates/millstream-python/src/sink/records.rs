//! The records of sinks with an outbox, read back as items: for deliveries, and for the dead letters of those that are
//! refused.

use std::sync::Arc;

use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_http::PostRequest;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::error::{AtRecord, cause};
use crate::saving::load_object;

/// How the items of a batch are read from their records.
pub(super) enum Decode {
    /// As objects are saved.
    Saved,
    /// The bytes themselves.
    Bytes,
    By(Py<PyAny>),
}

impl Decode {
    pub(super) fn item(&self, py: Python<'_>, mut record: &[u8]) -> Result<Py<PyAny>, Cause> {
        match self {
            Decode::Saved => load_object(py, &mut record, None),
            Decode::Bytes => Ok(PyBytes::new(py, record).into_any().unbind()),
            Decode::By(decode) => decode.call1(py, (PyBytes::new(py, record),)).map_err(cause),
        }
    }

    pub(super) fn batch<'py>(
        &self,
        py: Python<'py>,
        batch: &Frames,
        first: u64,
    ) -> Result<Bound<'py, PyList>, Cause> {
        let items = PyList::empty(py);
        for (number, record) in (first..).zip(batch.iter()) {
            let item = self.item(py, record);
            let item = item.map_err(|cause| AtRecord { number, cause })?;
            items.append(item).map_err(cause)?;
        }
        Ok(items)
    }
}

/// What the records of a sink are, for the dead letters of those that its destination refuses.
#[derive(Clone)]
pub(super) enum Records {
    Bytes,
    /// Bodies of requests, or requests.
    Posted,
    Outbox(Arc<Decode>),
    #[cfg(feature = "kafka")]
    Messages,
}

impl Records {
    /// Makes the item of a record.
    pub(super) fn item(&self, py: Python<'_>, record: &[u8]) -> Result<Py<PyAny>, Cause> {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).into_any().unbind();
        match self {
            Records::Bytes => Ok(bytes(record)),
            Records::Posted => Ok(bytes(PostRequest::body_of(record))),
            // What its decoder raises is why it was refused.
            Records::Outbox(decode) => decode.item(py, record).or_else(|_| Ok(bytes(record))),
            #[cfg(feature = "kafka")]
            Records::Messages => {
                let message = crate::kafka::KafkaMessage::of(record).map_err(cause)?;
                Ok(Py::new(py, message).map_err(cause)?.into_any())
            }
        }
    }
}
