//! From frames to objects: the step after a byte source.
//!
//! It is a step of its own, so that the age of a message counts from the moment its frame was cut
//! out of the input, decoding included. A frame that cannot be decoded is a poison message: the
//! error names the source and the offset, and the source's `on_error` says how it is handled.

use std::sync::Arc;

use millstream_flow::framing::Frames;
use millstream_flow::step::{Context, Step};
use millstream_flow::stream::Making;
use millstream_flow::{Failure, FlowError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyType};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;
use crate::policy::{ErrorHandler, OnErrorOption};
use crate::record::RecordMaker;
use crate::show::show;

/// How bytes become objects.
#[derive(Clone)]
pub(crate) enum Decode {
    Bytes,
    Text,
    Record(Arc<RecordMaker>),
    Function(Arc<Py<PyAny>>),
    /// A message of Kafka.
    #[cfg(feature = "kafka")]
    Message,
    /// The value of a message of Kafka; a tombstone is None.
    #[cfg(feature = "kafka")]
    Value(Box<Decode>),
}

impl Decode {
    /// Reads `decode=`: nothing or `bytes`, `str`, a subclass of `Record`, or a function.
    pub(crate) fn read(decode: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(decode) = decode else {
            return Ok(Decode::Bytes);
        };
        let py = decode.py();
        if decode.is(py.get_type::<PyBytes>()) {
            return Ok(Decode::Bytes);
        }
        if decode.is(py.get_type::<PyString>()) {
            return Ok(Decode::Text);
        }
        if let Ok(class) = decode.cast::<PyType>()
            && let Some(maker) = RecordMaker::of(class)?
        {
            return Ok(Decode::Record(Arc::new(maker)));
        }
        if decode.is_callable() {
            return Ok(Decode::Function(Arc::new(decode.clone().unbind())));
        }
        let what = show(decode);
        Err(PyTypeError::new_err(format!(
            "decode is bytes, str, a Record class or a function, not {what}"
        )))
    }

    fn one<'py>(&self, py: Python<'py>, frame: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Decode::Bytes => Ok(PyBytes::new(py, frame).into_any()),
            Decode::Text => PyString::from_bytes(py, frame).map(Bound::into_any),
            Decode::Record(maker) => maker.make(py, frame),
            Decode::Function(function) => function.bind(py).call1((PyBytes::new(py, frame),)),
            #[cfg(feature = "kafka")]
            Decode::Message => {
                let message = crate::kafka::KafkaMessage::of(frame)?;
                Bound::new(py, message).map(Bound::into_any)
            }
            #[cfg(feature = "kafka")]
            Decode::Value(decode) => match millstream_kafka::value(frame) {
                Some(value) => decode.one(py, value),
                None => Ok(py.None().into_bound(py)),
            },
        }
    }
}

/// A decoder on one worker.
pub(crate) struct DecodeStep {
    decode: Decode,
    policy: ErrorHandler,
}

impl DecodeStep {
    pub(crate) fn make(
        decode: &Decode,
        on_error: &OnErrorOption,
        source: &str,
        making: &Making<'_>,
    ) -> Result<Self, FlowError> {
        let mut policy = on_error.open(making)?;
        source.clone_into(&mut policy.step);
        Ok(DecodeStep {
            decode: decode.clone(),
            policy,
        })
    }

    fn work(
        &mut self,
        py: Python<'_>,
        input: &Frames,
        cx: &mut Context,
    ) -> Result<PyBatch, Failure> {
        let mut items = Vec::with_capacity(input.len());
        for (index, frame) in input.iter().enumerate() {
            match self.decode.one(py, frame) {
                Ok(item) => items.push(item),
                Err(error) => self.poison(py, input, index, error, cx)?,
            }
        }
        let list = PyList::new(py, items);
        list.map(PyBatch::of)
            .map_err(|error| Failure::new(self.policy.step.clone(), cause(error)))
    }

    #[cold]
    fn poison(
        &mut self,
        py: Python<'_>,
        input: &Frames,
        index: usize,
        error: PyErr,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let frame = PyBytes::new(py, input.get(index)).into_any();
        let said = format!("{}: {}", input.describe(index), show(&frame));
        self.policy
            .handle_described(None, Some(&frame), Some(said), error, cx, py)
    }
}

impl Step<Frames, PyBatch> for DecodeStep {
    fn apply(
        &mut self,
        input: &mut Frames,
        output: &mut PyBatch,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        *output = locked(|py| self.work(py, input, cx))?;
        Ok(())
    }
}
