//! The frame of an item: bytes, a text or a record.

use millstream_flow::framing::Frames;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::record::Record;
use crate::show::type_name;

/// Appends the frame of an item: the result of `encode`, or else its own bytes, or else its text if that is
/// wanted. For any other item the error names the `owner`, a sink or a source.
pub(crate) fn append_frame(
    item: &Bound<'_, PyAny>,
    encode: Option<&Py<PyAny>>,
    text: bool,
    owner: &str,
    frames: &mut Frames,
) -> PyResult<()> {
    let encoded = match encode {
        Some(encode) => &encode.bind(item.py()).call1((item,))?,
        None => item,
    };
    let out = &mut frames.data;
    let start = out.len();
    if let Ok(record) = encoded.cast::<Record>() {
        out.extend_from_slice(record.get().as_bytes());
    } else if let Ok(bytes) = encoded.cast::<PyBytes>() {
        out.extend_from_slice(bytes.as_bytes());
    } else if let Ok(text) = encoded.cast::<PyString>() {
        out.extend_from_slice(text.to_str()?.as_bytes());
    } else if let Ok(bytes) = encoded.cast::<PyByteArray>() {
        out.extend_from_slice(&bytes.to_vec());
    } else if encode.is_none() && (text || is_letter(encoded)?) {
        out.extend_from_slice(encoded.str()?.to_str()?.as_bytes());
    } else {
        let found = type_name(encoded);
        return Err(PyTypeError::new_err(match encode {
            Some(_) => format!("the encoder gave {found}, not bytes, str or a Record"),
            None => format!(
                "the {owner} takes bytes, str or a Record, not {found}; give it an encode function"
            ),
        }));
    }
    frames.spans.push((start as u32, end_of(frames)?));
    Ok(())
}

/// Whether an item is a dead letter, which is a line of JSON in any sink of bytes.
fn is_letter(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    let errors = item.py().import("millstream._errors.flow")?;
    item.is_instance(&errors.getattr("DeadLetter")?)
}

/// The end of the data of frames.
pub(super) fn end_of(frames: &Frames) -> PyResult<u32> {
    u32::try_from(frames.data.len())
        .map_err(|_| PyTypeError::new_err("a batch of output is larger than 4 GiB"))
}
