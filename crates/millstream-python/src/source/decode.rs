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
#[cfg(feature = "kafka")]
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
#[cfg(feature = "kafka")]
use pyo3::types::PyTuple;
use pyo3::types::{PyBytes, PyList, PyString, PyType};

use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::{locked, locked_while_alive};
#[cfg(feature = "kafka")]
use crate::kafka::KafkaMessage;
use crate::outage::{Waiting, is_outage};
use crate::policy::{ErrorHandler, OnErrorOption, Read};
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
    /// The value of a message of Kafka as bytes; a tombstone is None.
    #[cfg(feature = "kafka")]
    Value,
    /// What a decoder makes of the value of a message of Kafka; a tombstone is None.
    #[cfg(feature = "kafka")]
    Content(Box<Decode>),
    /// What two decoders make of the key and the value of a message of Kafka; of one that is missing, None.
    #[cfg(feature = "kafka")]
    Pair(Box<(Decode, Decode)>),
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
                let message = KafkaMessage::read(frame)?;
                Bound::new(py, message).map(Bound::into_any)
            }
            #[cfg(feature = "kafka")]
            Decode::Value => match millstream_kafka::value(frame) {
                Some(value) => Ok(PyBytes::new(py, value).into_any()),
                None => Ok(py.None().into_bound(py)),
            },
            #[cfg(feature = "kafka")]
            Decode::Content(decode) => decode.part(py, view(frame)?.value()),
            #[cfg(feature = "kafka")]
            Decode::Pair(decoders) => {
                let (view, (key, value)) = (view(frame)?, &**decoders);
                let pair = [key.part(py, view.key())?, value.part(py, view.value())?];
                PyTuple::new(py, pair).map(Bound::into_any)
            }
        }
    }

    /// Decodes the key or the value of a message.
    #[cfg(feature = "kafka")]
    fn part<'py>(&self, py: Python<'py>, part: Option<&[u8]>) -> PyResult<Bound<'py, PyAny>> {
        match part {
            Some(bytes) => self.one(py, bytes),
            None => Ok(py.None().into_bound(py)),
        }
    }

    /// Returns in one line why a frame cannot be decoded.
    pub(crate) fn check(&self, frame: &[u8]) -> Result<(), String> {
        let checked = locked_while_alive(|py| {
            self.one(py, frame).map(drop).map_err(|error| {
                let text = error.to_string();
                text.lines().next().unwrap_or_default().to_owned()
            })
        });
        checked.unwrap_or_else(|| Err("the flow ends".to_owned()))
    }

    /// Returns the position of the input in its source, where the frame itself has it.
    #[cfg_attr(not(feature = "kafka"), expect(unused_variables))]
    fn position(&self, frame: &[u8]) -> Option<String> {
        match self {
            #[cfg(feature = "kafka")]
            Decode::Message | Decode::Content(_) | Decode::Pair(_) => {
                let view = millstream_kafka::View::of(frame).ok()?;
                Some(view.position())
            }
            _ => None,
        }
    }

    /// Returns the input as it was read, for what handles one that cannot be decoded: a message of Kafka with all its
    /// parts, or the bytes of the frame.
    fn original<'py>(&self, py: Python<'py>, frame: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            #[cfg(feature = "kafka")]
            Decode::Message | Decode::Content(_) | Decode::Pair(_) => {
                Bound::new(py, KafkaMessage::of(frame)?).map(Bound::into_any)
            }
            _ => Ok(PyBytes::new(py, frame).into_any()),
        }
    }
}

/// The message of a frame.
#[cfg(feature = "kafka")]
fn view(frame: &[u8]) -> PyResult<millstream_kafka::View<'_>> {
    let view = millstream_kafka::View::of(frame);
    view.map_err(|error| PyValueError::new_err(error.to_string()))
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
        Ok(DecodeStep {
            decode: decode.clone(),
            policy: on_error.open_for(source, making)?,
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
                Err(error) if is_outage(py, &error) => {
                    let waiting = Waiting {
                        kind: "source",
                        name: &self.policy.step,
                        control: &cx.control,
                    };
                    match waiting.retry(py, error, || self.decode.one(py, frame))? {
                        Ok(item) => items.push(item),
                        Err(error) => self.poison(py, input, index, error, cx)?,
                    }
                }
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
        let failed = |error| Failure::new(self.policy.step.clone(), cause(error));
        let original = self.decode.original(py, input.get(index)).map_err(failed)?;
        let position = self.decode.position(input.get(index));
        let position = position.unwrap_or_else(|| input.describe(index));
        let read = Read {
            item: &original,
            position: &position,
        };
        self.policy.handle_read(None, read, error, cx, py)
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
