//! The encoder of a sink that has a policy for items it cannot encode: a step before the sink, which makes frames of
//! items.
//!
//! Without a policy a sink encodes in its writer, which saves an object for each item.

use millstream_flow::framing::Frames;
use millstream_flow::outbox::too_large;
use millstream_flow::step::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::AnySink;
use super::by_key::{KeyedSink, check_file_key, pair_of};
use super::encode::Encoder;
use crate::batch::PyBatch;
use crate::error::{cause, usage};
use crate::gil::locked;
use crate::outage::{Waiting, is_outage};
use crate::policy::{ErrorHandler, OnErrorOption};

/// The half of a sink that makes frames of items.
#[derive(Clone)]
pub(crate) struct Encoding {
    encoder: Encoder,
    /// Items are pairs of a key, which names a file, and a value.
    keyed: bool,
    /// The largest frame that the destination takes, and the destination.
    limit: Option<(usize, String)>,
}

/// Parts a sink into its encoder, if it has one, and a sink of what the encoder makes.
pub(crate) fn parted(py: Python<'_>, sink: AnySink) -> PyResult<(Option<Encoding>, AnySink)> {
    match sink {
        AnySink::Bytes(bytes) => {
            let (encoder, frames) = bytes.parted();
            let limit = frames.encoded.sink.record_bytes_max();
            let encoding = Encoding {
                encoder,
                keyed: false,
                limit: limit.map(|limit| (limit, frames.encoded.sink.describe())),
            };
            Ok((Some(encoding), AnySink::Bytes(frames.into())))
        }
        AnySink::Keyed(keyed) => {
            let (encoder, encoded) = keyed.encoded.parted();
            let encoding = Encoding {
                encoder,
                keyed: true,
                limit: None,
            };
            Ok((Some(encoding), AnySink::Keyed(KeyedSink { encoded }.into())))
        }
        AnySink::List(_) => Ok((None, sink)),
        AnySink::Object(_) => Err(usage(
            py,
            "on_error is for sinks that encode items: a millstream.Sink handles in write_batch what it cannot write",
        )),
    }
}

impl Encoding {
    /// Makes what the sink takes of an item.
    fn encode<'py>(
        &self,
        item: &Bound<'py, PyAny>,
        frames: &mut Frames,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = item.py();
        frames.clear();
        if self.keyed {
            let pair = pair_of(item)?;
            let key = pair.get_item(0)?;
            check_file_key(&key)?;
            self.encoder.append(&pair.get_item(1)?, frames)?;
            let frame = PyBytes::new(py, frames.get(0)).into_any();
            return PyTuple::new(py, [key, frame]).map(Bound::into_any);
        }
        self.encoder.append(item, frames)?;
        let frame = frames.get(0);
        match &self.limit {
            Some((limit, address)) if frame.len() > *limit => {
                let text = too_large(frame.len(), *limit, address);
                Err(PyValueError::new_err(text))
            }
            _ => Ok(PyBytes::new(py, frame).into_any()),
        }
    }
}

/// Such an encoder on one worker.
pub(crate) struct EncodeStep {
    encoding: Encoding,
    policy: ErrorHandler,
    frames: Frames,
}

impl EncodeStep {
    pub(crate) fn make(
        encoding: &Encoding,
        on_error: &OnErrorOption,
        sink: &str,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        Ok(EncodeStep {
            encoding: encoding.clone(),
            policy: on_error.open_for(sink, making)?,
            frames: Frames::default(),
        })
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let values = input.take_values(py);
        let encoded = PyList::empty(py);
        for item in values.iter() {
            let mut made = self.encoding.encode(&item, &mut self.frames);
            if let Err(error) = made {
                made = if is_outage(py, &error) {
                    self.retry(py, &item, error, cx)?
                } else {
                    Err(error)
                };
            }
            match made {
                Ok(frame) => encoded
                    .append(frame)
                    .map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))?,
                Err(error) => self.policy.handle(None, Some(&item), error, cx, py)?,
            }
        }
        Ok(PyBatch::of(encoded))
    }
}

impl EncodeStep {
    #[cold]
    fn retry<'py>(
        &mut self,
        py: Python<'py>,
        item: &Bound<'py, PyAny>,
        outage: PyErr,
        cx: &Context,
    ) -> Result<PyResult<Bound<'py, PyAny>>, Failure> {
        let waiting = Waiting {
            kind: "sink",
            name: &self.policy.step,
            control: &cx.control,
        };
        waiting.retry(py, outage, || self.encoding.encode(item, &mut self.frames))
    }
}

impl Step<PyBatch, PyBatch> for EncodeStep {
    fn apply(
        &mut self,
        input: &mut PyBatch,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        *output = locked(|py| self.work(py, input, cx))?;
        Ok(())
    }
}
