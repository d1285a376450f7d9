//! Codecs between bytes and items: decoders after byte sources, encoders before byte sinks.
//!
//! A decoder receives each frame as a slice of the read buffer and makes an item of it; the engine does not
//! copy the frame. A frame that cannot be decoded is a poison message: the error names its offset in the input,
//! and the policy decides what happens to it.

use std::fmt::Display;
use std::sync::Arc;

use crate::batch::Data;
use crate::batch::Kind;
use crate::control::Control;
use crate::error::{Cause, shorten};
use crate::framing::Frames;
use crate::policy::OnError;
use crate::poller::Io;
use crate::sink::{Sink, Writer};
use crate::source::{Events, Next, Partition, Position, Source, SourceSettings};
use crate::{forward_partition, forward_sink, forward_source, forward_writer};

/// A source of items: a source of frames with a decoder. [`decode`] creates it.
pub struct Decoded<S, F> {
    source: S,
    decode: Arc<F>,
    on_error: OnError,
}

/// Adds a decoder to a source of frames.
pub fn decode<S, F, T, E>(source: S, decode: F) -> Decoded<S, F>
where
    S: Source<Frames>,
    F: Fn(&[u8]) -> Result<T, E> + Send + Sync + 'static,
    E: Into<Cause>,
{
    Decoded {
        source,
        decode: Arc::new(decode),
        on_error: OnError::Fail,
    }
}

impl<S, F> Decoded<S, F> {
    /// Changes the source of the frames.
    pub(crate) fn with_source(mut self, change: impl FnOnce(S) -> S) -> Self {
        self.source = change(self.source);
        self
    }

    /// Sets the policy for a frame that cannot be decoded. The default is [`OnError::Fail`].
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
}

impl<S: Clone, F> Clone for Decoded<S, F> {
    fn clone(&self) -> Self {
        Decoded {
            source: self.source.clone(),
            decode: Arc::clone(&self.decode),
            on_error: self.on_error.clone(),
        }
    }
}

#[warn(clippy::missing_trait_methods)]
impl<S, F, T, E> Source<Vec<T>> for Decoded<S, F>
where
    S: Source<Frames>,
    F: Fn(&[u8]) -> Result<T, E> + Send + Sync + 'static,
    T: Data,
    E: Into<Cause>,
{
    forward_source!(this => this.source; describe partitions resumable growing);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        Ok(Box::new(DecodedPartition {
            inner: self.source.open(partition, resume, io)?,
            decode: Arc::clone(&self.decode),
            frames: Frames::default(),
        }))
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<Vec<T>>>> {
        let decoded = |source| -> Arc<dyn Source<Vec<T>>> {
            Arc::new(Decoded {
                source,
                decode: Arc::clone(&self.decode),
                on_error: self.on_error.clone(),
            })
        };
        (kind == Kind::Bytes).then(|| decoded(frames))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            on_error: self.on_error.clone(),
            ..self.source.settings()
        }
    }
}

struct DecodedPartition<F> {
    inner: Box<dyn Partition<Frames>>,
    decode: Arc<F>,
    frames: Frames,
}

impl<F> DecodedPartition<F> {
    fn poison(&self, index: usize, cause: Cause, events: &mut Events<'_>) -> Result<(), Cause> {
        let text = shorten(&String::from_utf8_lossy(self.frames.get(index)));
        let item = format!("{}: {text:?}", self.frames.describe(index));
        events.poison(Some(item), cause)
    }
}

#[warn(clippy::missing_trait_methods)]
impl<F, T, E> Partition<Vec<T>> for DecodedPartition<F>
where
    F: Fn(&[u8]) -> Result<T, E>,
    T: Data,
    E: Into<Cause>,
{
    fn next_batch(&mut self, batch: &mut Vec<T>, events: &mut Events<'_>) -> Result<Next, Cause> {
        self.frames.clear();
        let next = self.inner.next_batch(&mut self.frames, events)?;
        if next == Next::Batch {
            batch.reserve(self.frames.len());
            for index in 0..self.frames.len() {
                match (self.decode)(self.frames.get(index)) {
                    Ok(item) => batch.push(item),
                    Err(error) => self.poison(index, error.into(), events)?,
                }
            }
        }
        Ok(next)
    }
    forward_partition!(this => this.inner);
}

/// Decodes a frame as text.
///
/// # Errors
/// The frame is not UTF-8.
pub fn text(frame: &[u8]) -> Result<String, std::str::Utf8Error> {
    std::str::from_utf8(frame).map(str::to_owned)
}

/// A sink of items: a sink of frames with an encoder. [`encode`] creates it.
pub struct Encoded<S, F> {
    sink: S,
    encode: Arc<F>,
}

/// The result of an encoder: nothing, or a [`Result`] of an encoder that can fail.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Encoding {
    /// Returns the error, if there is one.
    ///
    /// # Errors
    /// The item cannot be encoded.
    fn into_result(self) -> Result<(), Cause>;
}

impl Encoding for () {
    fn into_result(self) -> Result<(), Cause> {
        Ok(())
    }
}

impl<E: Into<Cause>> Encoding for Result<(), E> {
    fn into_result(self) -> Result<(), Cause> {
        self.map_err(Into::into)
    }
}

impl<S, F> Encoded<S, F> {
    /// The sink of frames, and the encoder.
    pub(crate) fn parted(self) -> (S, Arc<F>) {
        (self.sink, self.encode)
    }
}

/// Adds an encoder to a sink of frames; it appends the bytes of an item to the buffer. An item that cannot be
/// encoded fails the flow, unless the stream ends in it by [`try_sink`](crate::Stream::try_sink).
pub fn encode<S, F, T, R>(sink: S, encode: F) -> Encoded<S, F>
where
    S: Sink<Frames>,
    F: Fn(&T, &mut Vec<u8>) -> R + Send + Sync + 'static,
    R: Encoding,
{
    Encoded {
        sink,
        encode: Arc::new(encode),
    }
}

/// Appends an item as text; an encoder for [`encode`].
pub fn display<T: Display>(item: &T, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to memory cannot fail; a `Display` that fails has written a part of its text.
    let _ = write!(out, "{item}");
}

#[warn(clippy::missing_trait_methods)]
impl<S, F, T, R> Sink<Vec<T>> for Encoded<S, F>
where
    S: Sink<Frames>,
    F: Fn(&T, &mut Vec<u8>) -> R + Send + Sync + 'static,
    T: Data,
    R: Encoding,
{
    forward_sink!(this => this.sink);
    fn open(
        &self,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(EncodedWriter {
            inner: self.sink.open(worker, control)?,
            encode: Arc::clone(&self.encode),
            frames: Frames::default(),
        }))
    }
    fn over(&self, frames: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<Vec<T>>>> {
        Some(Arc::new(Encoded {
            sink: frames,
            encode: Arc::clone(&self.encode),
        }))
    }
}

struct EncodedWriter<F> {
    inner: Box<dyn Writer<Frames>>,
    encode: Arc<F>,
    frames: Frames,
}

#[warn(clippy::missing_trait_methods)]
impl<F, T, R> Writer<Vec<T>> for EncodedWriter<F>
where
    F: Fn(&T, &mut Vec<u8>) -> R,
    R: Encoding,
{
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        self.frames.clear();
        for item in batch.drain(..) {
            let mut encoded = Ok(());
            self.frames
                .append(|out| encoded = (self.encode)(&item, out).into_result())?;
            encoded?;
        }
        self.inner.write_batch(&mut self.frames)
    }
    forward_writer!(this => this.inner);
}
