//! `Journal`: a durable log in a directory.
//!
//! The interpreter lock is released around everything that may wait: opening, a sync, another writer, a new segment,
//! the next records of a reader. A short append that need not wait keeps it, because releasing it costs as much as the
//! append.

pub(crate) mod body;
mod cursor;
mod mapped_segments;
mod open;
mod reader;
mod record;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use millstream_journal::{self as engine, CursorMode, Error, Options, Retention, Sync};
use millstream_replication::{Followers, ReplicationError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyRange, PySlice, PyTuple};

pub(crate) use cursor::JournalCursor;
pub(crate) use reader::JournalReader;
pub(crate) use record::JournalRecord;

use self::body::Body;
use self::open::Open;
use crate::error::{journal as to_python, journal_closed as closed, not_followed};
use crate::gil::unlocked;
use crate::show::type_name;

/// A longer record is copied without the interpreter lock.
const AT_ONCE_BYTES: usize = 32 << 10;
/// How many items of an iterable are appended in one batch.
const BATCH: usize = 4096;

/// How long a wait for followers lasts before signals are handled.
const LOOK: Duration = Duration::from_millis(100);

/// A durable, memory-mapped log of records in a directory, which any process of the machine may append to and read.
#[pyclass(frozen, subclass, module = "millstream._millstream")]
pub(crate) struct Journal {
    open: RwLock<Option<Arc<Open>>>,
    path: PathBuf,
    mode: String,
}

impl Journal {
    fn opened(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        // The error calls the interpreter, which may wait for the thread that closes the journal: without this lock.
        let open = self.open.read();
        let open = open.unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| closed(py, &self.path))
    }

    /// A reader of the range `start..stop`; `None` for the first record and no end.
    fn reader_of(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        stop: Option<u64>,
        waiting: Option<reader::Waiting>,
    ) -> PyResult<JournalReader> {
        let open = self.opened(py)?;
        let reader = unlocked(|| {
            let mut reader = open.journal.reader()?;
            if let Some(start) = start {
                reader.seek(start)?;
            }
            Ok(reader)
        });
        let reader = reader.map_err(|error| to_python(py, error))?;
        Ok(JournalReader::new(reader, stop, waiting, &open))
    }

    /// The sequence numbers of a slice. Negative ones count from the end; numbers that do not exist are skipped.
    fn slice(&self, py: Python<'_>, slice: &Bound<'_, PySlice>) -> PyResult<(u64, u64)> {
        let step = slice.getattr("step")?;
        if !step.is_none() && !step.eq(1)? {
            return Err(PyValueError::new_err(
                "a journal is read one by one: the step is 1",
            ));
        }
        let open = self.opened(py)?;
        let bounds = open
            .journal
            .first()
            .and_then(|first| Ok((first, open.journal.next()?)));
        let (first, next) = bounds.map_err(|error| to_python(py, error))?;
        let bound = |name: &str, default: u64| -> PyResult<u64> {
            let value = slice.getattr(name)?;
            if value.is_none() {
                return Ok(default);
            }
            let value: i128 = value.extract()?;
            let value = if value < 0 {
                i128::from(next) + value
            } else {
                value
            };
            Ok(value.clamp(i128::from(first), i128::from(next)) as u64)
        };
        let start = bound("start", first)?;
        Ok((start, bound("stop", next)?.max(start)))
    }

    fn append_batch(&self, py: Python<'_>, bodies: &[Bound<'_, PyAny>]) -> PyResult<(u64, u64)> {
        let bodies: Vec<Body<'_>> = bodies.iter().map(Body::of).collect::<PyResult<_>>()?;
        let open = self.opened(py)?;
        let range = unlocked(|| open.writer()?.append_many(&bodies));
        let range = range.map_err(|error| to_python(py, error))?;
        Ok((range.start, range.end))
    }
}

/// The sync policy for a number of seconds: `None` is never, zero is always.
pub(crate) fn sync_of(seconds: Option<f64>) -> PyResult<Sync> {
    Ok(match seconds {
        None => Sync::Never,
        Some(0.0) => Sync::Always,
        Some(seconds) => Sync::Every(Duration::try_from_secs_f64(seconds)?),
    })
}

/// Waits until so many followers have the record `sequence`, without the interpreter lock, and handles signals
/// meanwhile.
pub(crate) fn wait_followed(
    py: Python<'_>,
    of_journal: &mut Followers,
    sequence: u64,
    followers: usize,
    limit: Option<Duration>,
    path: &Path,
) -> PyResult<()> {
    let begin = now_ns();
    loop {
        let left = limit.map(|limit| limit.saturating_sub(Duration::from_nanos(now_ns() - begin)));
        let part = left.map_or(LOOK, |left| left.min(LOOK));
        match unlocked(|| of_journal.wait(sequence, followers, Some(part))) {
            Ok(()) => return Ok(()),
            Err(ReplicationError::NotFollowed { .. }) if left.is_none_or(|left| left > part) => {
                py.check_signals()?;
            }
            Err(ReplicationError::NotFollowed {
                followers: have,
                uncounted,
                ..
            }) => {
                let error = ReplicationError::NotFollowed {
                    sequence,
                    followers: have,
                    wanted: followers,
                    waited: limit.unwrap_or_default(),
                    uncounted,
                };
                return Err(not_followed(py, error, path));
            }
            Err(ReplicationError::Journal(error)) => return Err(to_python(py, error)),
            Err(error) => return Err(not_followed(py, error, path)),
        }
    }
}

pub(crate) fn retention_of(
    bytes: Option<u64>,
    age: Option<f64>,
    keep_for_cursors: bool,
) -> PyResult<Retention> {
    Ok(Retention {
        bytes,
        age: age.map(Duration::try_from_secs_f64).transpose()?,
        keep_for_cursors,
    })
}

fn range(py: Python<'_>, start: u64, end: u64) -> PyResult<Bound<'_, PyRange>> {
    PyRange::new(py, isize::try_from(start)?, isize::try_from(end)?)
}

#[pymethods]
impl Journal {
    #[new]
    #[pyo3(signature = (path, mode, sync, segment_bytes, record_bytes_max, exclusive, retain, busy_timeout))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the Python class names them and has the defaults"
    )]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        mode: String,
        sync: Option<f64>,
        segment_bytes: u64,
        record_bytes_max: u32,
        exclusive: bool,
        retain: (Option<u64>, Option<f64>, bool),
        busy_timeout: f64,
    ) -> PyResult<Self> {
        let options = Options {
            sync: sync_of(sync)?,
            segment_bytes,
            record_bytes_max,
            retention: retention_of(retain.0, retain.1, retain.2)?,
            exclusive,
            create: mode != "r",
            create_new: mode == "x",
            read_only: mode == "r",
            busy_timeout: Duration::try_from_secs_f64(busy_timeout)?,
            ..Options::default()
        };
        let journal = unlocked(|| engine::Journal::open(&path, options));
        let journal = journal.map_err(|error| to_python(py, error))?;
        let open = Open {
            journal,
            writer: OnceLock::new(),
            reader: Mutex::new(None),
            segments: Arc::default(),
            closed: Arc::default(),
        };
        Ok(Journal {
            open: RwLock::new(Some(Arc::new(open))),
            path,
            mode,
        })
    }

    /// Appends one record.
    ///
    /// Args:
    ///     body: bytes, ``str`` (as UTF-8), a record, or any other object with the buffer protocol.
    ///
    /// Returns:
    ///     The sequence number of the record.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.append("one"), journal.append(b"two")
    ///     (0, 1)
    fn append(&self, body: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = body.py();
        let body = Body::of(body)?;
        let guard = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = guard.as_ref() else {
            drop(guard);
            return Err(closed(py, &self.path));
        };
        if let Some(writer) = open.writer.get()
            && body.as_ref().len() <= AT_ONCE_BYTES
            && let Some(appended) = writer.try_append(body.as_ref()).transpose()
        {
            return appended.map_err(|error| to_python(py, error));
        }
        let open = Arc::clone(open);
        drop(guard);
        let appended = unlocked(|| open.writer()?.append(body.as_ref()));
        appended.map_err(|error| to_python(py, error))
    }

    /// Appends records that follow one another.
    ///
    /// The records of a list or tuple are one batch: one time, one sync, and readers see them at once. The
    /// records of another iterable are appended in batches of 4,096.
    ///
    /// Args:
    ///     bodies: the records, as for ``append``.
    ///
    /// Returns:
    ///     The range of their sequence numbers.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.append_many(["one", "two"])
    ///     range(0, 2)
    fn append_many<'py>(&self, bodies: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyRange>> {
        let py = bodies.py();
        // As a tuple, so that no other thread removes a body while it is appended.
        let tuple = match (bodies.cast::<PyTuple>(), bodies.cast::<PyList>()) {
            (Ok(tuple), _) => Some(tuple.clone()),
            (_, Ok(list)) => Some(list.to_tuple()),
            _ => None,
        };
        if let Some(tuple) = tuple {
            let (start, end) = self.append_batch(py, tuple.as_slice())?;
            return range(py, start, end);
        }
        if Body::of(bodies).is_ok() {
            let found = type_name(bodies);
            let message =
                format!("append_many takes an iterable of records, not one record of type {found}");
            return Err(PyTypeError::new_err(message));
        }
        let mut appended: Option<(u64, u64)> = None;
        let mut bodies = bodies.try_iter()?;
        loop {
            let batch: Vec<Bound<'py, PyAny>> =
                bodies.by_ref().take(BATCH).collect::<PyResult<_>>()?;
            if batch.is_empty() && appended.is_some() {
                break;
            }
            let (start, end) = self.append_batch(py, &batch)?;
            appended = Some((appended.map_or(start, |(first, _)| first), end));
            if batch.len() < BATCH {
                break;
            }
        }
        let (start, end) = appended.unwrap_or((0, 0));
        range(py, start, end)
    }

    /// Makes all records that were appended survive a loss of power.
    ///
    /// Returns:
    ///     The sequence number before which all records survive one.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     _ = journal.append("one")
    ///     ...     journal.sync()
    ///     1
    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        let open = self.opened(py)?;
        unlocked(|| open.journal.sync()).map_err(|error| to_python(py, error))
    }

    /// All records before this sequence number survive a loss of power.
    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.opened(py)?.journal.durable())
    }

    /// The sequence number of the oldest record that exists.
    #[getter]
    fn first(&self, py: Python<'_>) -> PyResult<u64> {
        let open = self.opened(py)?;
        open.journal.first().map_err(|error| to_python(py, error))
    }

    /// The sequence number that the next record will get.
    #[getter]
    fn next(&self, py: Python<'_>) -> PyResult<u64> {
        let open = self.opened(py)?;
        open.journal.next().map_err(|error| to_python(py, error))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let next = self.next(py)?;
        let first = self.first(py)?;
        Ok(usize::try_from(next.saturating_sub(first))?)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(slice) = key.cast::<PySlice>() {
            let (start, stop) = self.slice(py, slice)?;
            let reader = self.reader_of(py, Some(start), Some(stop), None)?;
            return Ok(Bound::new(py, reader)?.into_any());
        }
        let open = self.opened(py)?;
        let mut sequence: i128 = key.extract()?;
        if sequence < 0 {
            sequence += i128::from(self.next(py)?);
        }
        let sequence = u64::try_from(sequence).map_err(|_| to_python(py, before(&open, 0)))?;
        let record = unlocked(|| open.read(sequence)).map_err(|error| to_python(py, error))?;
        let record = JournalRecord::new(record, Arc::clone(&open.segments));
        Ok(Bound::new(py, record)?.into_any())
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<JournalReader> {
        self.reader_of(py, None, None, None)
    }

    /// Iterates over the records from ``start`` to the end, or to before ``stop``. Does not wait for more.
    ///
    /// Args:
    ///     start: the number of the first record. None: the oldest.
    ///     stop: the number before which the iteration ends. None: at the end of the journal.
    ///
    /// Returns:
    ///     The reader.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     _ = journal.append_many(list("abc"))
    ///     ...     [record.body for record in journal.read(1)]
    ///     [b'b', b'c']
    #[pyo3(signature = (start=None, stop=None))]
    fn read(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        stop: Option<u64>,
    ) -> PyResult<JournalReader> {
        self.reader_of(py, start, stop, None)
    }

    fn _tail(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        timeout: Option<f64>,
        wait: &str,
    ) -> PyResult<JournalReader> {
        let start = match start {
            Some(start) => start,
            None => self.next(py)?,
        };
        let waiting = reader::Waiting::new(wait, timeout)?;
        self.reader_of(py, Some(start), None, Some(waiting))
    }

    fn _seek(&self, py: Python<'_>, time_ns: u64) -> PyResult<u64> {
        let open = self.opened(py)?;
        let found = unlocked(|| {
            let mut reader = open.journal.reader()?;
            reader.seek_time(time_ns)?;
            Ok(reader.position())
        });
        found.map_err(|error| to_python(py, error))
    }

    fn _prune(
        &self,
        py: Python<'_>,
        bytes: Option<u64>,
        age: Option<f64>,
        keep_for_cursors: bool,
    ) -> PyResult<u64> {
        let retention = retention_of(bytes, age, keep_for_cursors)?;
        let open = self.opened(py)?;
        let pruned = unlocked(|| open.journal.prune(&retention));
        Ok(pruned.map_err(|error| to_python(py, error))?.first)
    }

    /// Opens a cursor: a position under a name that outlives this process. A new cursor is at the first
    /// record.
    ///
    /// Args:
    ///     name: the name.
    ///     shared: whether others that set this, too, may open the cursor meanwhile.
    ///
    /// Returns:
    ///     The cursor.
    ///
    /// Raises:
    ///     JournalBusyError: the cursor is open, and not shared.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     with journal.cursor("billing") as cursor:
    ///     ...         cursor.position
    ///     0
    #[pyo3(signature = (name, *, shared=false))]
    fn cursor(&self, py: Python<'_>, name: &str, shared: bool) -> PyResult<JournalCursor> {
        let open = self.opened(py)?;
        let share = if shared {
            CursorMode::Shared
        } else {
            CursorMode::Exclusive
        };
        let cursor = unlocked(|| open.journal.cursor(name, share));
        Ok(JournalCursor::new(
            cursor.map_err(|error| to_python(py, error))?,
        ))
    }

    /// Returns the positions of all cursors.
    ///
    /// Returns:
    ///     A dict of the positions by name.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.cursor("billing").close()
    ///     ...     journal.cursors()
    ///     {'billing': 0}
    fn cursors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.opened(py)?;
        let cursors = unlocked(|| open.journal.cursors()).map_err(|error| to_python(py, error))?;
        let positions = PyDict::new(py);
        for cursor in cursors {
            positions.set_item(cursor.name, cursor.position)?;
        }
        Ok(positions)
    }

    fn _wait_follower(
        &self,
        py: Python<'_>,
        sequence: u64,
        timeout: Option<f64>,
        followers: usize,
    ) -> PyResult<()> {
        let open = self.opened(py)?;
        let limit = timeout.map(Duration::try_from_secs_f64).transpose()?;
        let mut of_journal = Followers::of(&open.journal);
        wait_followed(py, &mut of_journal, sequence, followers, limit, &self.path)
    }

    /// Returns the followers of this journal on other machines that count for ``wait_follower``. The command
    /// ``millstream journal followers`` lists the others too, and lets them count.
    ///
    /// Returns:
    ///     A dict: by the name of each follower the number of the record that it needs next.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.followers()
    ///     {}
    fn followers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = self.opened(py)?;
        let found = unlocked(|| Followers::of(&open.journal).positions());
        let positions = PyDict::new(py);
        for (name, position) in found.map_err(|error| not_followed(py, error, &self.path))? {
            positions.set_item(name, position)?;
        }
        Ok(positions)
    }

    /// Removes a cursor, so that it no longer retains records.
    ///
    /// Args:
    ///     name: the name.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.cursor("billing").close()
    ///     ...     journal.remove_cursor("billing")
    ///     ...     journal.cursors()
    ///     {}
    fn remove_cursor(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let open = self.opened(py)?;
        unlocked(|| open.journal.remove_cursor(name)).map_err(|error| to_python(py, error))
    }

    /// Closes the journal. Tails end; records that Python holds stay valid.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     journal.close()
    ///     ...     journal.closed
    ///     True
    fn close(&self) {
        let open = self
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(open) = open {
            open.closed.store(true, Ordering::Relaxed);
            // The background thread ends what it does first.
            unlocked(|| drop(open));
        }
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
    }

    /// The directory.
    #[getter]
    fn path(&self) -> &PathBuf {
        &self.path
    }

    /// How it was opened: "a", "r" or "x".
    #[getter]
    fn mode(&self) -> &str {
        &self.mode
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().opened(slf.py())?;
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

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = self.path.display();
        let mode = &self.mode;
        match (self.first(py), self.next(py)) {
            (Ok(first), Ok(next)) => {
                format!("<journal '{path}', mode '{mode}', records {first}..{next}>")
            }
            _ if self.closed() => format!("<journal '{path}', closed>"),
            _ => format!("<journal '{path}', mode '{mode}'>"),
        }
    }
}

/// The error for a number below all others.
fn before(open: &Open, sequence: u64) -> Error {
    match open.journal.first() {
        Ok(first) => Error::Pruned {
            path: open.journal.path(),
            sequence,
            first,
        },
        Err(error) => error,
    }
}
