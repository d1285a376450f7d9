//! `Queue`: one durable queue.

use std::sync::Arc;
use std::time::Duration;

use millstream_queue::QueueError;
use millstream_queue::embedded::{self as engine, PutOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::{OpenItem, OpenQueues, Queues, call};
use crate::error::{queue as to_python, queues_closed};
use crate::gil::unlocked;
use crate::journal::body::Body;
use crate::show::type_name;

/// How often a wait checks for signals of Python.
const TICK: Duration = Duration::from_millis(100);
/// How many items of an iterable are put in one call.
const BATCH: usize = 4096;

/// One durable queue of a folder.
#[pyclass(frozen, subclass, module = "millstream._millstream")]
pub(crate) struct Queue {
    folder: Arc<OpenQueues>,
    name: String,
}

impl Queue {
    fn queue(&self, py: Python<'_>) -> PyResult<engine::Queue> {
        let queues = self.folder.opened(py)?;
        queues
            .queue(&self.name)
            .map_err(|error| to_python(py, error))
    }

    /// Waits in FIFO order; without a timeout forever.
    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        open: bool,
    ) -> PyResult<Option<engine::OpenItem>> {
        let limit = match timeout {
            Some(seconds) => Duration::try_from_secs_f64(seconds)?,
            None => Duration::MAX,
        };
        let mut waiting = {
            let queue = self.queue(py)?;
            call(py, || queue.wait(limit, open))?
        };
        while !call(py, || waiting.has_ended(TICK))? {
            py.check_signals()?;
            if self.folder.is_closed() {
                unlocked(|| drop(waiting));
                return Err(queues_closed(py, self.folder.path()));
            }
        }
        Ok(waiting.take())
    }
}

fn put_options(expires: Option<f64>, delay: f64, flags: u32, sync: bool) -> PyResult<PutOptions> {
    Ok(PutOptions {
        expires: expires.map(Duration::try_from_secs_f64).transpose()?,
        delay: Duration::try_from_secs_f64(delay)?,
        flags,
        sync,
    })
}

#[pymethods]
impl Queue {
    #[new]
    fn new(py: Python<'_>, queues: &Bound<'_, Queues>, name: String) -> PyResult<Self> {
        let queue = Queue {
            folder: Arc::clone(queues.get().folder()),
            name,
        };
        queue.queue(py)?;
        Ok(queue)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    fn _put(
        &self,
        py: Python<'_>,
        body: &Bound<'_, PyAny>,
        expires: Option<f64>,
        delay: f64,
        flags: u32,
        sync: bool,
    ) -> PyResult<()> {
        let options = put_options(expires, delay, flags, sync)?;
        let body = Body::of(body)?;
        let queue = self.queue(py)?;
        call(py, || queue.put_with(body.as_ref(), &options))
    }

    fn _put_many(
        &self,
        bodies: &Bound<'_, PyAny>,
        expires: Option<f64>,
        delay: f64,
        flags: u32,
        sync: bool,
    ) -> PyResult<usize> {
        let py = bodies.py();
        if Body::of(bodies).is_ok() {
            let found = type_name(bodies);
            let message =
                format!("put_many takes an iterable of items, not one item of type {found}");
            return Err(PyTypeError::new_err(message));
        }
        let options = put_options(expires, delay, flags, sync)?;
        let queue = self.queue(py)?;
        let mut bodies = bodies.try_iter()?;
        let mut stored = 0;
        loop {
            let batch: Vec<Bound<'_, PyAny>> =
                bodies.by_ref().take(BATCH).collect::<PyResult<_>>()?;
            if batch.is_empty() {
                return Ok(stored);
            }
            let batch: Vec<Body<'_>> = batch.iter().map(Body::of).collect::<PyResult<_>>()?;
            let put = unlocked(|| queue.put_many(&batch, &options));
            put.map_err(|error| to_python(py, further(error, stored)))?;
            stored += batch.len();
        }
    }

    fn _get<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let item = self.wait(py, timeout, false)?;
        Ok(item.map(|item| PyBytes::new(py, item.body())))
    }

    fn _open(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<OpenItem>> {
        let item = self.wait(py, timeout, true)?;
        Ok(item.map(|item| OpenItem::new(item, Arc::clone(&self.folder))))
    }

    /// Returns the next item and leaves it in the queue.
    ///
    /// Returns:
    ///     The bytes of the item; None if there is none.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues["jobs"].peek(), len(queues["jobs"])
    ///     (b'a', 1)
    fn peek<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let queue = self.queue(py)?;
        let item = call(py, || queue.peek())?;
        Ok(item.map(|item| PyBytes::new(py, &item.body)))
    }

    /// Removes all items that are not open.
    ///
    /// Returns:
    ///     Whether the queue exists.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues["jobs"].flush(), len(queues["jobs"])
    ///     (True, 0)
    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.queue(py)?;
        call(py, || queue.flush())
    }

    /// Removes the queue with all its items.
    ///
    /// Returns:
    ///     Whether the queue existed.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues["jobs"].delete(), list(queues)
    ///     (True, [])
    fn delete(&self, py: Python<'_>) -> PyResult<bool> {
        let queue = self.queue(py)?;
        call(py, || queue.delete())
    }

    /// Returns the statistics of the queue, with the names that ``stats`` of the protocol has.
    ///
    /// Returns:
    ///     A dict; empty before the first item.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     queues["jobs"].stats()["items"]
    ///     1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let queue = self.queue(py)?;
        let numbers = PyDict::new(py);
        for (name, value) in call(py, || queue.stats())? {
            numbers.set_item(name, value)?;
        }
        Ok(numbers)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let queue = self.queue(py)?;
        Ok(usize::try_from(call(py, || queue.len())?)?)
    }

    /// A queue is true, also an empty one.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        format!(
            "<queue '{}' of '{}'>",
            self.name,
            self.folder.path().display()
        )
    }
}

/// The same error, with the items that were stored in calls before.
fn further(error: QueueError, before: usize) -> QueueError {
    match error {
        QueueError::Partly { stored, cause } => QueueError::Partly {
            stored: stored + before,
            cause,
        },
        cause if before > 0 => QueueError::Partly {
            stored: before,
            cause: Box::new(cause),
        },
        cause => cause,
    }
}
