//! `JournalCursor`: a named position that outlives the process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_journal::Cursor;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::journal as to_python;
use crate::gil::unlocked;

/// A position in a journal under a name, which outlives the process. ``Journal.cursor`` opens it.
///
/// Example:
///     >>> import millstream as ms
///     >>> from tempfile import TemporaryDirectory
///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
///     ...     _ = journal.append_many(list("abc"))
///     ...     with journal.cursor("billing") as cursor:
///     ...         cursor.position = 2
///     ...     journal.cursors()
///     {'billing': 2}
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct JournalCursor {
    cursor: Mutex<Option<Cursor>>,
    name: String,
}

impl JournalCursor {
    pub(super) fn new(cursor: Cursor) -> Self {
        JournalCursor {
            name: cursor.name().to_owned(),
            cursor: Mutex::new(Some(cursor)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Cursor>> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Cursor) -> millstream_journal::Result<R>,
    ) -> PyResult<R> {
        // The lock is acquired and released without the interpreter's, so that no two threads wait for each other.
        let done = unlocked(|| self.lock().as_ref().map(work));
        match done {
            Some(done) => done.map_err(|error| to_python(py, error)),
            None => Err(PyValueError::new_err(format!(
                "cursor \"{}\" is closed",
                self.name
            ))),
        }
    }
}

#[pymethods]
impl JournalCursor {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number of the record to read next. Setting it moves the cursor, which then survives the death of
    /// this process.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, Cursor::position)
    }

    #[setter]
    fn set_position(&self, py: Python<'_>, sequence: u64) -> PyResult<()> {
        self.with(py, |cursor| cursor.set(sequence))
    }

    /// Makes the position survive a loss of power.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     with journal.cursor("billing") as cursor:
    ///     ...         cursor.sync()
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Cursor::sync)
    }

    /// Closes the cursor, so that others may open it.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     cursor = journal.cursor("billing")
    ///     ...     cursor.close()
    fn close(&self) {
        unlocked(|| drop(self.lock().take()));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.position(py) {
            Ok(position) => format!("<cursor '{}' at {position}>", self.name),
            Err(_) => format!("<cursor '{}', closed>", self.name),
        }
    }
}
