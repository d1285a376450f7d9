//! From objects to frames: the step before a byte sink.

use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::sink::{Refused, Token, Writer};
use millstream_flow::{Failure, forward_writer};
use pyo3::prelude::*;

use super::frame::{append_frame, end_of};
use super::post_encode::PostEncoder;
use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::{locked, unlocked};
use crate::outage::{Waiting, is_outage};
use crate::saving::save_object;
use crate::show::show;

/// A byte sink with the encoder before it.
pub(crate) struct EncodedWriter {
    pub(crate) name: String,
    pub(crate) inner: Unlocked<Frames>,
    pub(crate) encoder: Encoder,
    pub(crate) frames: Frames,
    pub(crate) control: Arc<Control>,
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

impl AppendItem for EncodedWriter {
    fn step(&self) -> &str {
        &self.name
    }
    fn control(&self) -> &Arc<Control> {
        &self.control
    }
    fn append(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        self.encoder.append(item, &mut self.frames)
    }
}

/// A writer that encodes items.
pub(super) trait AppendItem {
    /// Returns the name of the step.
    fn step(&self) -> &str;
    /// Returns what says that the run stops.
    fn control(&self) -> &Arc<Control>;
    /// Appends the frame of an item, or nothing if that fails.
    fn append(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()>;
}

/// Takes the items of a batch and appends each. A failure names the step and the item.
pub(super) fn append_all(writer: &mut impl AppendItem, batch: &mut PyBatch) -> Result<(), Cause> {
    locked(|py| {
        let values = batch.take_values(py);
        batch.clear();
        for item in values.iter() {
            let mut appended = writer.append(&item);
            if let Err(error) = appended {
                appended = if is_outage(py, &error) {
                    retry(py, writer, &item, error)?
                } else {
                    Err(error)
                };
            }
            appended.map_err(|error| {
                Box::new(Failure {
                    step: writer.step().to_owned(),
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
    py: Python<'_>,
    writer: &mut impl AppendItem,
    item: &Bound<'_, PyAny>,
    outage: PyErr,
) -> Result<PyResult<()>, Cause> {
    let name = writer.step().to_owned();
    let control = Arc::clone(writer.control());
    let waiting = Waiting {
        kind: "sink",
        name: &name,
        control: &control,
    };
    Ok(waiting.retry(py, outage, || writer.append(item))?)
}

#[warn(clippy::missing_trait_methods)]
impl Writer<PyBatch> for EncodedWriter {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        self.frames.clear();
        append_all(self, batch)?;
        self.inner.write_batch(&mut self.frames)
    }
    forward_writer!(this => this.inner);
}

/// A writer that works without the interpreter lock, until it is dropped.
pub(crate) struct Unlocked<B>(pub(super) Option<Box<dyn Writer<B>>>);

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
