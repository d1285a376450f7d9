//! `OpenItem`: an item that was taken and is not yet confirmed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_queue::embedded as engine;
use millstream_queue::history::{History, Origin};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{OpenQueues, call};
use crate::gil::unlocked;
use crate::time::duration;

/// An item that was taken and is not yet confirmed. It returns to its queue when its object is deleted, and counts as
/// delivered in vain unless the queues were closed before.
///
/// Example:
///     >>> import millstream as ms
///     >>> from tempfile import TemporaryDirectory
///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
///     ...     queues["jobs"].put("a", flags=7)
///     ...     with queues["jobs"].open() as item:
///     ...         item.body, item.flags, item.deliveries
///     (b'a', 7, 0)
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct OpenItem {
    open: Mutex<Option<engine::OpenItem>>,
    folder: Arc<OpenQueues>,
    body: Vec<u8>,
    id: u64,
    flags: u32,
    deliveries: u32,
    added_ms: u64,
    expiry_ms: u64,
    history: Option<Arc<History>>,
}

impl OpenItem {
    pub(super) fn new(item: engine::OpenItem, folder: Arc<OpenQueues>) -> Self {
        let known = item.item();
        OpenItem {
            body: known.body.to_vec(),
            id: known.id,
            flags: known.flags,
            deliveries: known.deliveries,
            added_ms: known.added_ms,
            expiry_ms: known.expiry_ms,
            history: known.history.clone(),
            open: Mutex::new(Some(item)),
            folder,
        }
    }

    fn take(&self) -> Option<engine::OpenItem> {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for OpenItem {
    fn drop(&mut self) {
        // The end of the queues is no failure of the item.
        match self.take() {
            Some(item) if self.folder.is_closed() => unlocked(|| item.give_back()),
            item => unlocked(|| drop(item)),
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The longest time of a `touch`, as over a connection.
const TOUCH_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// An optional time; 0 is none.
fn moment(ms: u64) -> Option<f64> {
    (ms != 0).then(|| seconds(ms))
}

/// The queue that an item left because it failed or expired there, and its state then.
///
/// Example:
///     >>> import millstream as ms
///     >>> from pathlib import Path
///     >>> from tempfile import TemporaryDirectory
///     >>> with TemporaryDirectory() as folder:
///     ...     config = Path(folder, "queues.toml")
///     ...     _ = config.write_text('[queue.jobs]\nmax_deliveries = 1\nerror_queue = "bad"\n')
///     ...     with ms.Queues(f"{folder}/queues", config=config) as queues:
///     ...         queues["jobs"].put("a")
///     ...         with queues["jobs"].open() as item:
///     ...             item.abort()
///     ...         with queues["bad"].open() as item:
///     ...             item.origin.queue, item.origin.reason
///     ('jobs', 'failed')
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct ItemOrigin(Origin);

#[pymethods]
impl ItemOrigin {
    /// The name of the queue.
    #[getter]
    fn queue(&self) -> &str {
        &self.0.queue
    }

    /// Why it left: ``"failed"`` after too many deliveries, ``"expired"`` when its time was over.
    #[getter]
    fn reason(&self) -> &'static str {
        self.0.reason.as_str()
    }

    /// When it left, in seconds since 1970.
    #[getter]
    fn left(&self) -> f64 {
        seconds(self.0.left_ms)
    }

    /// How often it had been delivered and requeued, before earlier redrives too.
    #[getter]
    fn deliveries(&self) -> u32 {
        self.0.deliveries
    }

    /// Its expiry there, in seconds since 1970; None for never.
    #[getter]
    fn expires(&self) -> Option<f64> {
        moment(self.0.expiry_ms)
    }

    fn __repr__(&self) -> String {
        let Origin {
            queue, deliveries, ..
        } = &self.0;
        let reason = self.0.reason.as_str();
        format!("<left '{queue}': {reason}, {deliveries} deliveries>")
    }
}

#[pymethods]
impl OpenItem {
    /// The bytes.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.body)
    }

    /// Its number in its queue.
    #[getter]
    fn id(&self) -> u64 {
        self.id
    }

    /// The number that came with it.
    #[getter]
    fn flags(&self) -> u32 {
        self.flags
    }

    /// How often it was delivered before and requeued.
    #[getter]
    fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// When it was put, in seconds since 1970.
    #[getter]
    fn added(&self) -> f64 {
        seconds(self.added_ms)
    }

    /// When it expires, in seconds since 1970; None for never.
    #[getter]
    fn expires(&self) -> Option<f64> {
        moment(self.expiry_ms)
    }

    /// When it was first requeued after a delivery, here or in a queue that it left, in seconds since 1970; None if
    /// never.
    #[getter]
    fn first_failed(&self) -> Option<f64> {
        let history = self.history.as_ref();
        moment(history.map_or(0, |history| history.first_failed_ms))
    }

    /// The queue that it left last, because it failed or expired there, and its state then; None if it comes from no
    /// other queue.
    #[getter]
    fn origin(&self) -> Option<ItemOrigin> {
        let history = self.history.as_ref()?;
        history.origin.clone().map(ItemOrigin)
    }

    /// Whether the item is open: neither closed nor aborted.
    #[getter]
    fn is_open(&self) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.is_some()
    }

    /// Confirms the item: it is removed from the queue.
    ///
    /// Returns:
    ///     False if the item was closed or aborted before, or if its ``open_timeout`` has passed.
    ///
    /// Raises:
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     with queues["jobs"].open() as item:
    ///     ...         item.close()
    ///     True
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        match self.take() {
            Some(item) => call(py, || item.close()),
            None => Ok(false),
        }
    }

    /// Begins the time of the item anew, for work that takes longer than the ``open_timeout`` of its queue.
    ///
    /// Args:
    ///     seconds: after this time the item returns to its queue, as a number, a timedelta or text like
    ///         ``"1m"``. None: after the ``open_timeout``.
    ///
    /// Returns:
    ///     False if the item is no longer open: another consumer may have it.
    ///
    /// Raises:
    ///     ValueError: the time is not positive, or over 30 days.
    ///     QueueError: the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     with queues["jobs"].open() as item:
    ///     ...         item.touch(60)
    ///     True
    #[pyo3(signature = (seconds=None))]
    fn touch(&self, py: Python<'_>, seconds: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let limit = seconds
            .map(|seconds| duration("seconds", seconds, 1, "QueueUsageError"))
            .transpose()?;
        if limit.is_some_and(|limit| limit > TOUCH_MAX) {
            return Err(PyValueError::new_err("seconds is at most 30 days"));
        }
        // Locked without the interpreter, which a thread that waits for the lock may hold.
        call(py, || {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.as_ref().map_or(Ok(false), |item| item.touch(limit))
        })
    }

    /// Returns the item to its position in the queue.
    ///
    /// Args:
    ///     failed: whether it counts as delivered in vain, for ``max_deliveries`` and ``retry``.
    ///     delay: the time before which it is not served again, whatever ``retry`` says; such an item has failed.
    ///
    /// Raises:
    ///     ValueError: the delay is negative, or the item has not failed.
    ///     QueueError: with a delay, the queues are closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
    ///     ...     queues["jobs"].put("a")
    ///     ...     with queues["jobs"].open() as item:
    ///     ...         item.abort()
    ///     ...     len(queues["jobs"])
    ///     1
    #[pyo3(signature = (failed=true, *, delay=None))]
    fn abort(
        &self,
        py: Python<'_>,
        failed: bool,
        delay: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let delay = delay
            .map(|delay| duration("delay", delay, 0, "QueueUsageError"))
            .transpose()?;
        if delay.is_some() && !failed {
            return Err(PyValueError::new_err(
                "delay: an item that has not failed has none",
            ));
        }
        match (self.take(), delay) {
            (None, _) => {}
            (Some(item), Some(delay)) => {
                call(py, || item.abort_for(delay))?;
            }
            (Some(item), None) if failed => unlocked(|| item.abort()),
            (Some(item), None) => unlocked(|| item.give_back()),
        }
        Ok(())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.body(py)
    }

    fn __len__(&self) -> usize {
        self.body.len()
    }

    /// An item is true, also an empty one.
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let state = if self.is_open() { "open" } else { "closed" };
        format!("<item {}, {} bytes, {state}>", self.id, self.body.len())
    }
}
