//! A file for each key, with an encoder before it.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_flow::files::{self, KeyedFrames};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::encode::{Encoded, EncodedSink, Encoder, Otherwise};
use crate::key::{KeyPart, check_key};
use crate::show::type_name;
use crate::source::framing;

/// A sink of pairs of key and value.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct KeyedSink {
    pub(super) encoded: EncodedSink<KeyedFrames>,
}

#[pymethods]
impl KeyedSink {
    fn __repr__(&self) -> String {
        format!("<sink {}>", self.encoded.sink.describe())
    }
}

impl Encoded for KeyedFrames {
    fn append(&mut self, item: &Bound<'_, PyAny>, encoder: &Encoder) -> PyResult<()> {
        let pair = pair_of(item)?;
        // The encoder may have to be called again: it comes before the key.
        encoder.append(&pair.get_item(1)?, &mut self.frames)?;
        let start = self.keys.data.len() as u32;
        append_key(&pair.get_item(0)?, &mut self.keys.data)?;
        let end = self.keys.data.len() as u32;
        self.keys.spans.push((start, end));
        Ok(())
    }
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
    let otherwise = Otherwise::of(framing.as_ref());
    let sink = match framing {
        Some(framing) => sink.framing(framing),
        None => sink.raw(),
    };
    Ok(KeyedSink {
        encoded: EncodedSink {
            sink: Arc::new(sink),
            encoder: Encoder::by(encode, otherwise),
        },
    })
}
