//! A list as a sink: the sink of `millstream.testing.collect`. With recovery it is truncated to the last
//! committed epoch, as a file is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millstream_flow::batch::Batch;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::files::{length_of, token_of};
use millstream_flow::shared_log::{Log, SharedLog};
use millstream_flow::sink::{Token, Writer};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyList;

use super::OpenWriter;
use crate::batch::PyBatch;
use crate::error::cause;
use crate::gil::locked;

/// The list as the workers of a run write it. It is locked by `lock_py_attached` only: who holds it calls the interpreter,
/// which may stop all attached threads, so that no attached thread waits for it.
type Shared = Mutex<SharedLog<Growing>>;

/// A list as a sink of a flow.
pub(crate) struct ListSink {
    list: Py<PyList>,
    /// How many of its items a later commit has confirmed as committed.
    committed: AtomicUsize,
    shared: Mutex<Weak<Shared>>,
}

/// The lists that are sinks now, by address: a list that several steps write to is one sink.
static LISTS: Mutex<BTreeMap<usize, Weak<ListSink>>> = Mutex::new(BTreeMap::new());

impl ListSink {
    /// The sink of a list.
    pub(crate) fn of(list: &Bound<'_, PyList>) -> Arc<Self> {
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        let place = list.as_ptr() as usize;
        if let Some(known) = lists.get(&place).and_then(Weak::upgrade) {
            return known;
        }
        lists.retain(|_, sink| sink.strong_count() > 0);
        let sink = Arc::new(ListSink {
            list: list.clone().unbind(),
            committed: AtomicUsize::new(0),
            shared: Mutex::default(),
        });
        lists.insert(place, Arc::downgrade(&sink));
        sink
    }

    pub(crate) fn open(&self, control: &Arc<Control>) -> OpenWriter {
        locked(|py| {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let list = shared.upgrade().unwrap_or_else(|| {
                let growing = Growing(self.list.clone_ref(py));
                let list = Arc::new(Mutex::new(SharedLog::new(growing, control)));
                *shared = Arc::downgrade(&list);
                list
            });
            drop(shared);
            let writer = lock(py, &list).join();
            Box::new(ListWriter { list, writer })
        })
    }

    pub(crate) fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        locked(|py| {
            let list = self.list.bind(py);
            // What a list held before its first run is none of the flow's.
            let length = match tokens {
                [] => list.len(),
                tokens => length_of(tokens)? as usize,
            };
            if list.len() < length {
                let found = list.len();
                return Err(format!(
                    "the list has {found} items, fewer than the {length} that were committed"
                )
                .into());
            }
            list.del_slice(length, list.len()).map_err(cause)?;
            self.committed.store(length, Ordering::Relaxed);
            Ok(Some(token_of(length as u64)))
        })
    }

    pub(crate) fn commit(&self, tokens: &[Token]) -> Result<(), Cause> {
        self.committed
            .store(length_of(tokens)? as usize, Ordering::Relaxed);
        Ok(())
    }

    /// How many items a sink would show that hides them until a later commit confirms them.
    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }
}

fn lock<'a>(py: Python<'_>, list: &'a Shared) -> MutexGuard<'a, SharedLog<Growing>> {
    list.lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner)
}

/// The writer of a list.
struct Growing(Py<PyList>);

impl Log for Growing {
    type Batch = Option<Py<PyList>>;

    fn append(&mut self, batch: &mut Option<Py<PyList>>) -> Result<(), Cause> {
        let Some(values) = batch.take() else {
            return Ok(());
        };
        locked(|py| {
            let list = self.0.bind(py);
            let values = values.bind(py);
            if values.len() == 1 {
                list.append(values.get_item(0)?)
            } else {
                list.set_slice(list.len(), list.len(), values)
            }
        })
        .map_err(cause)
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        Ok(locked(|py| self.0.bind(py).len()) as u64)
    }
}

/// Appends each batch to a list.
struct ListWriter {
    list: Arc<Shared>,
    writer: usize,
}

impl ListWriter {
    fn with<T>(&self, work: impl FnOnce(&mut SharedLog<Growing>) -> T) -> T {
        locked(|py| work(&mut lock(py, &self.list)))
    }
}

impl Writer<PyBatch> for ListWriter {
    fn write_batch(&mut self, batch: &mut PyBatch) -> Result<(), Cause> {
        let mut values = batch.values.take();
        batch.clear();
        self.with(|list| list.write(self.writer, &mut values))
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let length = self.with(|list| list.prepare(self.writer, epoch))?;
        Ok(length.map(token_of))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let length = self.with(|list| list.leave(self.writer))?;
        Ok(length.map(token_of))
    }
}
