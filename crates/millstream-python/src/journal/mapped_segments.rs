//! Segments as Python sees them, for views of bodies.
//!
//! A view is memory that the engine has mapped, and keeps it mapped: so a fault of the file system is noted there as
//! for all other readers, and does not end the process. A frame that was published never changes. The most recently
//! used segments stay mapped.

use std::sync::{Mutex, PoisonError};

use millstream_journal::PinnedRecord;
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// How many segments stay mapped.
const KEPT: usize = 4;

/// What keeps a segment mapped: any record of it.
#[pyclass(frozen, module = "millstream._millstream")]
struct MappedSegment {
    _record: PinnedRecord,
}

/// The mapped segments of one journal.
#[derive(Default)]
pub(super) struct MappedSegments {
    maps: Mutex<Vec<(usize, Py<PyAny>)>>,
}

impl MappedSegments {
    /// The body of `record` where it is mapped.
    pub(super) fn view<'py>(
        &self,
        py: Python<'py>,
        record: PinnedRecord,
    ) -> PyResult<Bound<'py, PyAny>> {
        let start = isize::try_from(record.offset())?;
        let end = start + isize::try_from(record.body().len())?;
        self.map(py, record)?
            .get_item(PySlice::new(py, start, end, 1))
    }

    fn map<'py>(&self, py: Python<'py>, record: PinnedRecord) -> PyResult<Bound<'py, PyAny>> {
        let start = record.body().as_ptr().addr() - usize::try_from(record.offset())?;
        if let Some(found) = self.find(py, start) {
            return Ok(found);
        }
        let length = record.mapped_len();
        let keeper = MappedSegment { _record: record };
        let package = py.import("millstream._stores.journal")?;
        let map = package.getattr("_memory")?.call1((start, length, keeper))?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if maps.len() == KEPT {
            Some(maps.remove(0))
        } else {
            None
        };
        maps.push((start, map.clone().unbind()));
        drop(maps);
        drop(oldest);
        Ok(map)
    }

    /// The segment that is mapped at this address. It stays at this address while this object holds it.
    fn find<'py>(&self, py: Python<'py>, start: usize) -> Option<Bound<'py, PyAny>> {
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let found = maps.iter().find(|(known, _)| *known == start);
        found.map(|(_, map)| map.bind(py).clone())
    }
}
