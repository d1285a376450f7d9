//! `Queues`: durable queues in a folder, used in this process.
//!
//! The interpreter lock is released around every call of the queues: each may wait for a sync, for an item, or for
//! another thread that uses the queues.

mod open_item;
mod queue;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use millstream_journal::Sync;
use millstream_queue::QueueError;
use millstream_queue::embedded::{self as engine, Options};
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use open_item::{ItemOrigin, OpenItem};
pub(crate) use queue::Queue;

use crate::error::{queue as to_python, queues_closed};
use crate::gil::unlocked;

/// An open folder, shared by the objects that use it.
pub(crate) struct OpenQueues {
    open: RwLock<Option<engine::Queues>>,
    path: PathBuf,
}

impl OpenQueues {
    /// The queues, unless they were closed.
    pub(crate) fn opened(&self, py: Python<'_>) -> PyResult<engine::Queues> {
        // The error calls the interpreter, which may wait for the thread that closes the queues: without this lock.
        let open = self.open.read();
        let open = open.unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| queues_closed(py, &self.path))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn is_closed(&self) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.is_none()
    }
}

/// Runs a call of the queues without the interpreter lock.
fn call<T>(py: Python<'_>, call: impl FnOnce() -> Result<T, QueueError>) -> PyResult<T> {
    unlocked(call).map_err(|error| to_python(py, error))
}

/// A folder of durable queues, used in this process without a server.
#[pyclass(frozen, subclass, module = "millstream._millstream")]
pub(crate) struct Queues {
    folder: Arc<OpenQueues>,
}

impl Queues {
    pub(crate) fn folder(&self) -> &Arc<OpenQueues> {
        &self.folder
    }
}

#[pymethods]
impl Queues {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        sync: Option<f64>,
        config: Option<PathBuf>,
    ) -> PyResult<Self> {
        let sync = match sync {
            None => Sync::Never,
            Some(0.0) => Sync::Always,
            Some(seconds) => Sync::Every(Duration::try_from_secs_f64(seconds)?),
        };
        let queues = call(py, || {
            engine::Queues::open(&path, &Options { sync, config })
        })?;
        let folder = OpenQueues {
            open: RwLock::new(Some(queues)),
            path,
        };
        Ok(Queues {
            folder: Arc::new(folder),
        })
    }

    /// Returns the names of all open queues, sorted.
    ///
    /// Returns:
    ///     The names.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues.names()
    ///     ['jobs']
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let queues = self.folder.opened(py)?;
        let names = unlocked(|| queues.names());
        Ok(names.iter().map(ToString::to_string).collect())
    }

    /// Returns the queues that stay closed because they are damaged.
    ///
    /// Returns:
    ///     A dict: by the name of each queue what is damaged.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues.damaged()
    ///     {}
    fn damaged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let queues = self.folder.opened(py)?;
        let damaged = PyDict::new(py);
        for (name, reason) in unlocked(|| queues.closed()) {
            damaged.set_item(name, reason)?;
        }
        Ok(damaged)
    }

    /// Reads the configuration again. Items that are in a queue keep their expiry.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues.reload()
    fn reload(&self, py: Python<'_>) -> PyResult<()> {
        let queues = self.folder.opened(py)?;
        call(py, || queues.reload())
    }

    /// Makes all items survive a loss of power, whatever the policy is.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues.sync()
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let queues = self.folder.opened(py)?;
        call(py, || queues.sync())
    }

    /// Closes the queues. Waiting calls raise; open items return to their queues when their objects are
    /// deleted.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues.close()
    ///     ...     queues.closed
    ///     True
    fn close(&self) {
        let mut open = self
            .folder
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let queues = open.take();
        drop(open);
        // The last handle syncs.
        unlocked(|| drop(queues));
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.folder.is_closed()
    }

    /// The folder.
    #[getter]
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.names(py)?.len())
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.names(py)?.iter().any(|known| known == name))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().folder.opened(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<queues '{}'{closed}>", self.folder.path().display())
    }
}
