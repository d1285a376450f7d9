//! Compressed bytes that are in no file: compressed at once, and decompressed chunk by chunk.

use std::io::{Error, Read};
use std::sync::{Arc, Mutex, PoisonError};

use millstream_flow::compression::Decompressed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyIterator};

use crate::gil::{locked, unlocked};
use crate::source::compression;

/// How many bytes of the contents a chunk has; the last one may have fewer.
const CHUNK: usize = 1 << 20;

/// The exception that the chunks have raised: an error of the decoder has only its text.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// Compresses bytes into one member or frame.
#[pyfunction]
#[pyo3(signature = (content, compression))]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    content: PyBackedBytes,
    compression: Option<&str>,
) -> PyResult<Bound<'py, PyBytes>> {
    let compression = self::compression(py, compression)?;
    let compressed = unlocked(|| compression.compress(&content))?;
    Ok(PyBytes::new(py, &compressed))
}

/// The contents of compressed chunks. What the iterator of the chunks raises passes through; damage is ValueError.
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct Decompressor {
    contents: Mutex<Decompressed<Chunks>>,
    raised: Raised,
}

#[pymethods]
impl Decompressor {
    #[new]
    #[pyo3(signature = (chunks, compression))]
    fn new(chunks: &Bound<'_, PyAny>, compression: Option<&str>) -> PyResult<Self> {
        let compression = self::compression(chunks.py(), compression)?;
        let raised = Raised::default();
        let chunks = Chunks {
            chunks: chunks.try_iter()?.unbind(),
            chunk: None,
            at: 0,
            raised: Arc::clone(&raised),
        };
        Ok(Decompressor {
            contents: Mutex::new(compression.decompress(chunks)?),
            raised,
        })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut content = Vec::new();
        // The lock of the interpreter is released first: the chunks need it, while this lock is held.
        let read = unlocked(|| {
            let mut contents = self.contents.lock().unwrap_or_else(PoisonError::into_inner);
            (&mut *contents)
                .take(CHUNK as u64)
                .read_to_end(&mut content)
        });
        match read {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(PyBytes::new(py, &content))),
            Err(error) => {
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                let raised = raised.take();
                Err(raised.unwrap_or_else(|| PyValueError::new_err(error.to_string())))
            }
        }
    }
}

/// The bytes of an iterator of chunks.
struct Chunks {
    chunks: Py<PyIterator>,
    chunk: Option<PyBackedBytes>,
    /// How much of the chunk was read.
    at: usize,
    raised: Raised,
}

impl Chunks {
    fn next(&mut self) -> PyResult<Option<PyBackedBytes>> {
        locked(|py| {
            let mut chunks = self.chunks.bind(py).clone();
            let next = chunks.next().transpose()?;
            next.map(|chunk| chunk.extract().map_err(PyErr::from))
                .transpose()
        })
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let rest = self.chunk.as_deref().unwrap_or_default();
            let rest = rest.get(self.at..).unwrap_or_default();
            if !rest.is_empty() {
                let size = rest.len().min(buffer.len());
                buffer[..size].copy_from_slice(&rest[..size]);
                self.at += size;
                return Ok(size);
            }
            match self.next() {
                Ok(None) => return Ok(0),
                Ok(chunk) => (self.chunk, self.at) = (chunk, 0),
                Err(error) => {
                    *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Err(Error::other("the chunks have raised an exception"));
                }
            }
        }
    }
}
