//! From objects to the records of a sink that posts: the JSON text of an item, or a request with it.

use std::sync::Arc;

use millstream_flow::framing::Frames;
use millstream_http::PostRequest;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyMapping, PyString};

use super::frame::append_frame;
use crate::show::type_name;

/// Makes the records of a sink that posts.
#[derive(Clone)]
pub(crate) struct PostEncoder(Arc<Options>);

struct Options {
    encode: Py<PyAny>,
    /// Whether bodies are JSON that `encode` may have made wrong.
    checks_json: bool,
    /// Records are requests, whose parts are what these functions make of an item.
    parts: Option<Parts>,
}

/// Functions of an item.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Parts {
    key: Option<Py<PyAny>>,
    url: Option<Py<PyAny>>,
    method: Option<Py<PyAny>>,
    headers: Option<Py<PyAny>>,
}

impl PostEncoder {
    pub(super) fn new(encode: Py<PyAny>, checks_json: bool, parts: Option<Parts>) -> Self {
        PostEncoder(Arc::new(Options {
            encode,
            checks_json,
            parts,
        }))
    }

    /// Appends the record of an item.
    pub(super) fn append(&self, item: &Bound<'_, PyAny>, frames: &mut Frames) -> PyResult<()> {
        let options = &*self.0;
        let start = frames.data.len();
        append_frame(item, Some(&options.encode), false, "sink", frames)?;
        let Some(parts) = &options.parts else {
            return self.check(&frames.data[start..], &[]);
        };
        frames.spans.pop();
        let mut request = parts.of(item)?;
        self.check(&frames.data[start..], &request.headers)?;
        request.body = frames.data.split_off(start);
        let mut made = Ok(());
        frames
            .append(|record| made = request.encode(record))
            .map_err(|error| PyTypeError::new_err(error.to_string()))?;
        made.map_err(PyValueError::new_err)
    }

    /// Refuses a body that is no JSON, unless its content type is another one.
    fn check(&self, body: &[u8], headers: &[(String, String)]) -> PyResult<()> {
        let is_json = |value: &str| millstream_http::is_json_type(value);
        let mut kinds = headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if self.0.checks_json && kinds.all(|(_, value)| is_json(value)) {
            millstream_http::check_json(body).map_err(PyValueError::new_err)
        } else {
            Ok(())
        }
    }
}

impl Parts {
    /// The request of an item, without its body.
    fn of(&self, item: &Bound<'_, PyAny>) -> PyResult<PostRequest> {
        let call = |function: &Option<Py<PyAny>>| {
            let function = function.as_ref().map(|function| function.bind(item.py()));
            function.map(|function| function.call1((item,))).transpose()
        };
        let text = |part: &str, made: Option<Bound<'_, PyAny>>| {
            let text = |made: Bound<'_, PyAny>| match made.cast::<PyString>() {
                Ok(text) => Ok(text.to_str()?.to_owned()),
                Err(_) => Err(wrong(part, "a text", &made)),
            };
            made.map(text).transpose()
        };
        Ok(PostRequest {
            key: call(&self.key)?.map(|key| key_bytes(&key)).transpose()?,
            url: text("url", call(&self.url)?)?,
            method: text("method", call(&self.method)?)?,
            headers: call(&self.headers)?
                .map(|made| header_pairs(&made))
                .transpose()?
                .unwrap_or_default(),
            body: Vec::new(),
        })
    }
}

/// The bytes of a key: those of equal keys are equal.
fn key_bytes(key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = key.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    match key.cast::<PyInt>() {
        // Also of a bool, which is equal to a number.
        Ok(number) => {
            let digits = number.call_method1("__format__", ("d",))?;
            Ok(digits.cast::<PyString>()?.to_str()?.as_bytes().to_vec())
        }
        Err(_) => Err(wrong("key", "a text, bytes or an int", key)),
    }
}

fn header_pairs(made: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let Ok(mapping) = made.cast::<PyMapping>() else {
        return Err(wrong("headers", "a mapping of texts", made));
    };
    let mut pairs = Vec::new();
    for pair in mapping.items()?.iter() {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let (Ok(name), Ok(value)) = (name.cast::<PyString>(), value.cast::<PyString>()) else {
            return Err(wrong("headers", "a mapping of texts", made));
        };
        pairs.push((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
    }
    Ok(pairs)
}

fn wrong(part: &str, what: &str, made: &Bound<'_, PyAny>) -> PyErr {
    let found = type_name(made);
    PyTypeError::new_err(format!("{part} of an item is {what}, not {found}"))
}
