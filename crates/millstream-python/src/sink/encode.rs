//! From objects to frames: the step before a byte sink.

use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::{Frames, Framing};
use millstream_flow::sink::{Refused, Sink, Token, Writer};
use millstream_flow::{Failure, forward_writer};
use pyo3::prelude::*;

use super::OpenWriter;
use super::frame::{append_frame, end_of};
use super::post_encode::PostEncoder;
use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::{locked, unlocked};
use crate::outage::{Waiting, is_outage};
use crate::saving::save_object;
use crate::show::show;

/// A sink of the engine with the encoder before it.
pub(crate) struct EncodedSink<B> {
    pub(crate) sink: Arc<dyn Sink<B>>,
    pub(crate) encoder: Encoder,
}

impl<B> Clone for EncodedSink<B> {
    fn clone(&self) -> Self {
        EncodedSink {
            sink: Arc::clone(&self.sink),
            encoder: self.encoder.clone(),
        }
    }
}

impl<B: Encoded> EncodedSink<B> {
    /// The sink of the engine.
    pub(crate) fn engine(&self) -> &dyn Sink<B> {
        &*self.sink
    }

    /// The same for all copies of this sink.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.sink).cast::<()>() as usize
    }

    /// The same sink for frames, and the encoder that makes them.
    pub(crate) fn parted(&self) -> (Encoder, Self) {
        let frames = EncodedSink {
            sink: Arc::clone(&self.sink),
            encoder: Encoder::of_frames(),
        };
        (self.encoder.clone(), frames)
    }

    pub(crate) fn open(
        &self,
        name: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<OpenWriter, Cause> {
        Ok(Box::new(EncodedWriter {
            name: name.to_owned(),
            inner: Unlocked(Some(unlocked(|| self.sink.open(worker, control))?)),
            encoder: self.encoder.clone(),
            frames: B::default(),
            control: Arc::clone(control),
        }))
    }
}

/// A batch of frames that are made of items.
pub(crate) trait Encoded: Batch {
    /// Appends what `encoder` makes of an item, or nothing if that fails.
    fn append(&mut self, item: &Bound<'_, PyAny>, encoder: &Encoder) -> PyResult<()>;
}

impl Encoded for Frames {
    fn append(&mut self, item: &Bound<'_, PyAny>, encoder: &Encoder) -> PyResult<()> {
        encoder.append(item, self)
    }
}

/// Such a sink at work.
struct EncodedWriter<B> {
    name: String,
    inner: Unlocked<B>,
    encoder: Encoder,
    frames: B,
    control: Arc<Control>,
}

/// Makes frames of items.
#[derive(Clone)]
pub(crate) struct Encoder {
    pub(crate) encode: Option<Arc<Py<PyAny>>>,
    pub(crate) otherwise: Otherwise,
    pub(crate) posted: Option<PostEncoder>,
    #[cfg(feature = "kafka")]
    pub(crate) messages: Option<Arc<crate::kafka::KafkaEncoder>>,
}

impl Encoder {
    /// An encoder of items that are frames already.
    pub(crate) fn of_frames() -> Self {
        Encoder {
            encode: None,
            otherwise: Otherwise::Refused,
            posted: None,
            #[cfg(feature = "kafka")]
            messages: None,
        }
    }

    /// An encoder that calls a function, if there is one.
    pub(crate) fn by(encode: Option<Py<PyAny>>, otherwise: Otherwise) -> Self {
        Encoder {
            encode: encode.map(Arc::new),
            otherwise,
            ..Self::of_frames()
        }
    }

    /// Appends the frame of an item.
    pub(crate) fn append(&self, item: &Bound<'_, PyAny>, frames: &mut Frames) -> PyResult<()> {
        #[cfg(feature = "kafka")]
        if let Some(messages) = &self.messages {
            return messages.append(item, frames);
        }
        if let Some(posted) = &self.posted {
            return posted.append(item, frames);
        }
        let encode = self.encode.as_deref();
        if encode.is_some() || self.otherwise != Otherwise::Saved {
            let text = self.otherwise == Otherwise::Text;
            return append_frame(item, encode, text, "sink", frames);
        }
        let start = frames.data.len() as u32;
        save_object(item, &mut frames.data)?;
        frames.spans.push((start, end_of(frames)?));
        Ok(())
    }
}

/// What is written for an item without an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Bytes, text or a record; anything else is an error.
    Refused,
    /// Bytes, text or a record; anything else as its text.
    Text,
    /// The item as objects are saved, whatever it is.
    Saved,
}

impl Otherwise {
    /// Of a sink with this framing, or none: lines are written of anything.
    pub(crate) fn of(framing: Option<&Framing>) -> Self {
        match framing {
            Some(Framing::Lines) => Otherwise::Text,
            _ => Otherwise::Refused,
        }
    }
}

impl<B: Encoded> EncodedWriter<B> {
    /// Takes the items of a batch and appends each. A failure names the step and the item.
    fn append_all(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        locked(|py| {
            let values = batch.take_values(py);
            batch.clear();
            for item in values.iter() {
                let mut appended = self.frames.append(&item, &self.encoder);
                if let Err(error) = appended {
                    appended = if is_outage(py, &error) {
                        self.retry(py, &item, error)?
                    } else {
                        Err(error)
                    };
                }
                appended.map_err(|error| {
                    Box::new(Failure {
                        step: self.name.clone(),
                        key: None,
                        item: Some(show(&item)),
                        cause: cause(error),
                    })
                })?;
            }
            Ok(())
        })
    }

    #[cold]
    fn retry(
        &mut self,
        py: Python<'_>,
        item: &Bound<'_, PyAny>,
        outage: PyErr,
    ) -> Result<PyResult<()>, Cause> {
        let waiting = Waiting {
            kind: "sink",
            name: &self.name,
            control: &self.control,
        };
        Ok(waiting.retry(py, outage, || self.frames.append(item, &self.encoder))?)
    }
}

#[warn(clippy::missing_trait_methods)]
impl<B: Encoded> Writer<PyBatch> for EncodedWriter<B> {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        self.frames.clear();
        self.append_all(batch)?;
        self.inner.write_batch(&mut self.frames)
    }
    forward_writer!(this => this.inner);
}

/// A writer that works without the interpreter lock, until it is dropped.
struct Unlocked<B>(Option<Box<dyn Writer<B>>>);

impl<B> Unlocked<B> {
    fn call<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Writer<B>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        match self.0.as_deref_mut() {
            Some(writer) => unlocked(|| work(writer)),
            None => Err("the writer is closed".into()),
        }
    }
}

#[warn(clippy::missing_trait_methods)]
impl<B> Writer<B> for Unlocked<B> {
    fn write_batch(&mut self, batch: &mut B) -> Result<(), Cause> {
        self.call(|writer| writer.write_batch(batch))
    }
    fn flush(&mut self) -> Result<(), Cause> {
        self.call(|writer| writer.flush())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.call(|writer| writer.prepare(epoch))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.call(|writer| writer.close())
    }
    fn take_refused(&mut self) -> Result<Vec<Refused>, Cause> {
        self.call(|writer| writer.take_refused())
    }
}

impl<B> Drop for Unlocked<B> {
    fn drop(&mut self) {
        // Its threads may wait for the lock, and it waits for them.
        let writer = self.0.take();
        unlocked(move || drop(writer));
    }
}
