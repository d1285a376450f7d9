//! `JournalRecord`: one record, at its position in the mapped segment.

use std::sync::Arc;

use millstream_journal::PinnedRecord;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::mapped_segments::MappedSegments;
use crate::error::journal as to_python;
use crate::show::show;

/// A record of a journal. Its ``view`` is a memoryview of the mapped file: nothing is copied, and it
/// stays valid.
///
/// Example:
///     >>> import millstream as ms
///     >>> from tempfile import TemporaryDirectory
///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
///     ...     _ = journal.append_many(list("abc"))
///     ...     record = journal[1]
///     ...     record.sequence, record.body, record.view.tobytes()
///     (1, b'b', b'b')
#[pyclass(frozen, freelist = 1024, module = "millstream._millstream")]
pub(crate) struct JournalRecord {
    record: PinnedRecord,
    segments: Arc<MappedSegments>,
}

impl JournalRecord {
    #[inline]
    pub(super) fn new(record: PinnedRecord, segments: Arc<MappedSegments>) -> Self {
        JournalRecord { record, segments }
    }

    /// What was appended.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.record.body()
    }

    fn key(&self) -> (u64, u64, &[u8]) {
        (
            self.record.sequence(),
            self.record.time_ns(),
            self.as_bytes(),
        )
    }
}

#[pymethods]
impl JournalRecord {
    /// Its number: dense, and never used twice.
    #[getter]
    fn sequence(&self) -> u64 {
        self.record.sequence()
    }

    /// When it was appended, in nanoseconds since 1970.
    #[getter]
    fn time_ns(&self) -> u64 {
        self.record.time_ns()
    }

    /// When it was appended, as a datetime in UTC, truncated to microseconds.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let package = py.import("millstream._stores.journal")?;
        package
            .getattr("_datetime")?
            .call1((self.record.time_ns(),))
    }

    /// What was appended, as bytes of their own.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let body = PyBytes::new(py, self.record.body());
        self.check(py)?;
        Ok(body)
    }

    /// What was appended, as a read-only memoryview of the mapped file: nothing is copied.
    #[getter]
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check(py)?;
        self.segments.view(py, self.record.clone())
    }

    /// Checks that the file system has not failed under this record; a view would show zeros then.
    ///
    /// Raises:
    ///     JournalIOError: it has failed.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     _ = journal.append("a")
    ///     ...     journal[0].check()
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.record.check().map_err(|error| to_python(py, error))
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.body(py)
    }

    fn __len__(&self) -> usize {
        self.record.body().len()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<JournalRecord>();
        other.is_ok_and(|other| other.get().key() == self.key())
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        let (sequence, time_ns, body) = self.key();
        (sequence, time_ns, PyBytes::new(py, body))
            .into_pyobject(py)?
            .hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let body = show(self.body(py)?.as_any());
        let sequence = self.record.sequence();
        let time = self.time(py)?;
        let time = time.call_method1("isoformat", ())?;
        Ok(format!("<record {sequence} of {time}: {body}>"))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a record belongs to its journal and cannot be pickled; its body can",
        ))
    }
}
