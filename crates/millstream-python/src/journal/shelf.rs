//! Segments as Python maps them, for views of bodies.
//!
//! A buffer of Python's own `mmap` needs no unsafe code of ours: a view of it keeps the mapping alive, and a frame that was published
//! never changes. The few segments that were asked for last are kept.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use millstream_journal::PinnedRecord;
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};

/// How many mappings are kept.
const KEPT: usize = 4;

/// The mappings of one journal.
pub(super) struct Shelf {
    root: PathBuf,
    maps: Mutex<Vec<(String, Py<PyAny>)>>,
}

impl Shelf {
    pub(super) fn new(root: PathBuf) -> Self {
        Shelf {
            root,
            maps: Mutex::default(),
        }
    }

    /// The body of `record` as a view of the file. One whose file has been removed is copied.
    pub(super) fn view<'py>(
        &self,
        py: Python<'py>,
        record: &PinnedRecord,
    ) -> PyResult<Bound<'py, PyAny>> {
        let map = match self.map(py, record.file()) {
            Err(error) if error.is_instance_of::<PyFileNotFoundError>(py) => {
                let copy = PyBytes::new(py, record.body());
                return Ok(PyMemoryView::from(copy.as_any())?.into_any());
            }
            map => map?,
        };
        let start = isize::try_from(record.offset())?;
        let end = start + isize::try_from(record.body().len())?;
        map.get_item(PySlice::new(py, start, end, 1))
    }

    fn map<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        if let Some(found) = self.find(py, &name) {
            return Ok(found);
        }
        // Not under the lock: opening a file lets go of the interpreter.
        let package = py.import("millstream._journal")?;
        let map = package.getattr("_map")?.call1((self.root.join(&name),))?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if maps.len() == KEPT {
            Some(maps.remove(0))
        } else {
            None
        };
        maps.push((name, map.clone().unbind()));
        drop(maps);
        drop(oldest);
        Ok(map)
    }

    fn find<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let found = maps.iter().find(|(known, _)| known == name);
        found.map(|(_, map)| map.bind(py).clone())
    }
}
