//! `JournalReader`: an iterator over the records of a journal, which may wait for more.
//!
//! Records are found without the interpreter lock, some at a time, and returned one by one.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use millstream_journal::{Error, PinnedRecord, Reader, Wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::mapped_segments::MappedSegments;
use super::open::Open;
use super::record::JournalRecord;
use crate::error::{journal as to_python, journal_closed};
use crate::gil::unlocked;

/// How many records are found at once, and about how many bytes of them.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 1 << 20;
/// How long a wait lasts before Python's signals are handled.
const TICK: Duration = Duration::from_millis(50);

/// How a tail waits.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    wait: Wait,
    timeout: Option<Duration>,
}

impl Waiting {
    pub(super) fn new(wait: &str, timeout: Option<f64>) -> PyResult<Self> {
        let wait = match wait {
            "block" => Wait::Block,
            "backoff" => Wait::BackOff,
            "spin" => Wait::Spin,
            other => {
                let message = format!("wait is \"block\", \"backoff\" or \"spin\", not {other:?}");
                return Err(PyValueError::new_err(message));
            }
        };
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose()?;
        Ok(Waiting { wait, timeout })
    }
}

/// An iterator over the records of a journal. One thread at a time may use it.
///
/// Example:
///     >>> import millstream as ms
///     >>> from tempfile import TemporaryDirectory
///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
///     ...     _ = journal.append_many(list("abc"))
///     ...     reader = journal.read()
///     ...     next(reader).body, reader.position
///     (b'a', 1)
#[pyclass(frozen, module = "millstream._millstream")]
pub(crate) struct JournalReader {
    state: Mutex<State>,
    waiting: Option<Waiting>,
    segments: Arc<MappedSegments>,
    path: PathBuf,
    /// The journal was closed.
    closed: Arc<AtomicBool>,
    /// This reader was.
    ended: AtomicBool,
}

struct State {
    reader: Reader,
    stop: u64,
    found: VecDeque<PinnedRecord>,
    /// The error after the records that were found.
    fault: Option<Error>,
}

impl State {
    /// Find records, without waiting for any.
    fn read_available(&mut self) {
        let mut bytes = 0;
        while self.found.len() < BATCH && bytes < BATCH_BYTES && self.reader.position() < self.stop
        {
            match self.reader.next_pinned() {
                Ok(Some(record)) => {
                    bytes += record.body().len();
                    self.found.push_back(record);
                }
                Ok(None) => return,
                Err(error) => {
                    self.fault = Some(error);
                    return;
                }
            }
        }
    }

    /// Wait for a record and find it.
    fn wait(&mut self, wait: Wait, limit: Duration) {
        match self.reader.wait(wait, Some(limit)) {
            Ok(true) => self.read_available(),
            Ok(false) => {}
            Err(error) => self.fault = Some(error),
        }
    }

    fn position(&self) -> u64 {
        self.found
            .front()
            .map_or_else(|| self.reader.position(), PinnedRecord::sequence)
    }
}

impl JournalReader {
    pub(super) fn new(
        reader: Reader,
        stop: Option<u64>,
        waiting: Option<Waiting>,
        open: &Open,
    ) -> Self {
        JournalReader {
            state: Mutex::new(State {
                reader,
                stop: stop.unwrap_or(u64::MAX),
                found: VecDeque::new(),
                fault: None,
            }),
            waiting,
            segments: Arc::clone(&open.segments),
            path: open.journal.path(),
            closed: Arc::clone(&open.closed),
            ended: AtomicBool::new(false),
        }
    }

    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyValueError::new_err(
                "another thread is using this reader; give each thread its own",
            )),
        }
    }

    /// Find more records. False at the end, or when the time is over.
    fn find(&self, py: Python<'_>, state: &mut State) -> PyResult<bool> {
        if self.closed.load(Ordering::Relaxed) {
            return match self.waiting {
                Some(_) => Ok(false),
                None => Err(journal_closed(py, &self.path)),
            };
        }
        if let Some(fault) = state.fault.take() {
            return Err(to_python(py, fault));
        }
        unlocked(|| state.read_available());
        let Some(Waiting { wait, timeout }) = self.waiting else {
            return Ok(!state.found.is_empty() || state.fault.is_some());
        };
        let mut left = timeout;
        while state.found.is_empty() && state.fault.is_none() {
            let tick = left.map_or(TICK, |left| left.min(TICK));
            if tick.is_zero()
                || self.closed.load(Ordering::Relaxed)
                || self.ended.load(Ordering::Relaxed)
            {
                return Ok(false);
            }
            unlocked(|| state.wait(wait, tick));
            left = left.map(|left| left - tick);
            py.check_signals()?;
        }
        Ok(true)
    }
}

#[pymethods]
impl JournalReader {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<JournalRecord>> {
        let mut state = self.state()?;
        while !self.ended.load(Ordering::Relaxed) {
            if let Some(record) = state.found.pop_front() {
                return Ok(Some(JournalRecord::new(record, Arc::clone(&self.segments))));
            }
            if !self.find(py, &mut state)? {
                break;
            }
        }
        Ok(None)
    }

    /// The sequence number of the next record.
    #[getter]
    fn position(&self) -> PyResult<u64> {
        Ok(self.state()?.position())
    }

    /// Moves to a record.
    ///
    /// Args:
    ///     sequence: the number of the record that is read next.
    ///
    /// Raises:
    ///     JournalError: the journal is closed or cannot be used; the subclass says why.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     _ = journal.append_many(list("abc"))
    ///     ...     reader = journal.read()
    ///     ...     reader.seek(2)
    ///     ...     next(reader).body
    ///     b'c'
    fn seek(&self, py: Python<'_>, sequence: u64) -> PyResult<()> {
        let mut state = self.state()?;
        unlocked(|| state.reader.seek(sequence)).map_err(|error| to_python(py, error))?;
        state.found.clear();
        state.fault = None;
        Ok(())
    }

    /// Ends the iteration, also while another thread waits in it.
    ///
    /// Example:
    ///     >>> import millstream as ms
    ///     >>> from tempfile import TemporaryDirectory
    ///     >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
    ///     ...     _ = journal.append_many(list("abc"))
    ///     ...     reader = journal.read()
    ///     ...     reader.close()
    ///     ...     list(reader)
    ///     []
    fn close(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
