//! A file for each key, with an encoder before it.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::batch::Batch;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::files::{self, KeyedFrames, WriteByKey};
use millstream_flow::forward_writer;
use millstream_flow::framing::Framing;
use millstream_flow::sink::{Sink, Writer};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::OpenWriter;
use super::encode::{AppendItem, Encoder, Otherwise, Unlocked, append_all};
use super::frame::append_frame;
use crate::batch::PyBatch;
use crate::gil::{locked, unlocked};
use crate::key::{KeyPart, check_key};
use crate::show::type_name;
use crate::source::framing;

/// A sink of pairs of key and value.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct KeyedSink {
    sink: Arc<WriteByKey>,
    encode: Option<Arc<Py<PyAny>>>,
    text: bool,
}

#[pymethods]
impl KeyedSink {
    fn __repr__(&self) -> String {
        format!("<sink {}>", self.sink.describe())
    }
}

impl KeyedSink {
    /// The sink of the engine.
    pub(crate) fn engine(&self) -> &dyn Sink<KeyedFrames> {
        &*self.sink
    }

    /// The same for all copies of this sink.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.sink) as usize
    }

    /// The same sink for pairs of key and frame, and the encoder that makes frames of values.
    pub(super) fn parted(&self) -> (Encoder, Self) {
        let frames = KeyedSink {
            sink: Arc::clone(&self.sink),
            encode: None,
            text: false,
        };
        let encoder = Encoder {
            encode: self.encode.clone(),
            otherwise: if self.text {
                Otherwise::Text
            } else {
                Otherwise::Refused
            },
            ..Encoder::of_frames()
        };
        (encoder, frames)
    }

    pub(crate) fn open(
        &self,
        name: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<OpenWriter, Cause> {
        let encode = self.encode.as_ref();
        Ok(Box::new(KeyedWriter {
            name: name.to_owned(),
            inner: Unlocked(Some(unlocked(|| self.sink.open(worker, control))?)),
            encode: encode.map(|encode| locked(|py| encode.clone_ref(py))),
            text: self.text,
            frames: KeyedFrames::default(),
            control: Arc::clone(control),
        }))
    }
}

/// Such a sink with the encoder before it.
struct KeyedWriter {
    name: String,
    inner: Unlocked<KeyedFrames>,
    encode: Option<Py<PyAny>>,
    text: bool,
    frames: KeyedFrames,
    control: Arc<Control>,
}

impl AppendItem for KeyedWriter {
    fn step(&self) -> &str {
        &self.name
    }
    fn control(&self) -> &Arc<Control> {
        &self.control
    }
    fn append(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        let pair = pair_of(item)?;
        let encode = self.encode.as_ref();
        // The encoder may have to be called again: it comes before the key.
        append_frame(
            &pair.get_item(1)?,
            encode,
            self.text,
            "sink",
            &mut self.frames.frames,
        )?;
        let keys = &mut self.frames.keys;
        let start = keys.data.len() as u32;
        append_key(&pair.get_item(0)?, &mut keys.data)?;
        keys.spans.push((start, keys.data.len() as u32));
        Ok(())
    }
}

#[warn(clippy::missing_trait_methods)]
impl Writer<PyBatch> for KeyedWriter {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        self.frames.clear();
        append_all(self, batch)?;
        self.inner.write_batch(&mut self.frames)
    }
    forward_writer!(this => this.inner);
}

/// Returns an item as the pair that the sink takes.
pub(super) fn pair_of<'a, 'py>(item: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyTuple>> {
    let pair = item.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    pair.ok_or_else(|| {
        let found = type_name(item);
        PyTypeError::new_err(format!(
            "the sink takes pairs of key and value, as in streams after key_by, not {found}"
        ))
    })
}

/// Checks that the name of a file can be made of a key.
pub(super) fn check_file_key(key: &Bound<'_, PyAny>) -> PyResult<()> {
    append_key(key, &mut Vec::new())
}

/// Appends a key: a letter for its type, and its text, of which the name of its file is made.
fn append_key(key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    check_key(key)?;
    match KeyPart::of(key)? {
        KeyPart::Text(text) => {
            out.push(b't');
            out.extend_from_slice(text.as_bytes());
        }
        KeyPart::Bytes(bytes) => {
            out.push(b'b');
            out.extend_from_slice(bytes);
        }
        KeyPart::Integer(number) => append_number(b"i", number, out),
        KeyPart::Bool(flag) => append_number(b"i", flag.into(), out),
        KeyPart::Tuple(members) => {
            out.push(b'm');
            append_members(members, out)?;
        }
    }
    Ok(())
}

/// Appends the digits of an integer; those of `True` are those of 1, to which it is equal.
fn append_number(kind: &[u8], number: i128, out: &mut Vec<u8>) {
    out.extend_from_slice(kind);
    out.extend_from_slice(number.to_string().as_bytes());
}

/// Appends the members of a tuple with commas between them. Ambiguous characters are escaped with a backslash.
fn append_members(members: &Bound<'_, PyTuple>, out: &mut Vec<u8>) -> PyResult<()> {
    if members.is_empty() {
        out.extend_from_slice(b"\\e");
    }
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match KeyPart::of(&member)? {
            KeyPart::Integer(number) => append_number(b"", number, out),
            KeyPart::Bool(flag) => append_number(b"", flag.into(), out),
            KeyPart::Text(text) => {
                let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
                if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
                    out.push(b'\\');
                }
                append_escaped(text.as_bytes(), out);
            }
            KeyPart::Bytes(bytes) => {
                out.extend_from_slice(b"\\b");
                append_escaped(bytes, out);
            }
            KeyPart::Tuple(members) => {
                out.extend_from_slice(b"\\(");
                append_members(members, out)?;
                out.extend_from_slice(b"\\)");
            }
        }
    }
    Ok(())
}

fn append_escaped(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte == b',' || byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// A directory to write a file for each key to. Without a framing frames are written as they are.
#[pyfunction]
#[pyo3(signature = (path, *, suffix, framing, encode, preamble, max_open))]
pub(crate) fn file_write_by_key(
    py: Python<'_>,
    path: PathBuf,
    suffix: &str,
    framing: Option<&str>,
    encode: Option<Py<PyAny>>,
    preamble: &[u8],
    max_open: usize,
) -> PyResult<KeyedSink> {
    let framing = framing.map(|name| self::framing(py, name)).transpose()?;
    let sink = files::write_by_key(path)
        .suffix(suffix)
        .preamble(preamble)
        .max_open(max_open);
    let text = framing == Some(Framing::Lines);
    let sink = match framing {
        Some(framing) => sink.framing(framing),
        None => sink.raw(),
    };
    Ok(KeyedSink {
        sink: Arc::new(sink),
        encode: encode.map(Arc::new),
        text,
    })
}
