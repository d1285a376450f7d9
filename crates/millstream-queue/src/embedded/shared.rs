//! What all threads of a process share of one folder: the queues behind a lock, who waits, and the thread for what is due.
//!
//! The invariant: after any change of the queues, whose wait has ended is woken, and the thread that turns them sleeps no longer
//! than until the next event.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tracing::error;

use super::{Options, registry};
use crate::broker::{Queues, QueuesLimits, Unsynced};
use crate::clock;
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::storage::{JournalStorage, Syncing};

/// A folder that is open.
pub(crate) struct Shared {
    core: Arc<Core>,
    turning: Option<JoinHandle<()>>,
    folder: PathBuf,
    options: Options,
    /// The longest item, in bytes.
    pub(super) item_bytes_max: usize,
    process: u32,
    /// Last, so that others may open the folder only when its lock has gone with the queues.
    _entry: Entry,
}

/// What the thread for what is due has too.
struct Core {
    state: Mutex<State>,
    /// The next event is earlier than it was, or the folder is to be closed.
    changed: Condvar,
}

pub(super) struct State {
    pub(super) queues: Queues<JournalStorage>,
    /// Who waits.
    bells: HashMap<ConnectionId, Arc<Condvar>>,
    /// For when the thread sleeps.
    timer_us: Option<u64>,
    closing: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.folder.display())
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After the queues were touched.
    #[inline]
    fn settle(&self, state: &mut State) {
        for id in state.queues.take_woken() {
            if let Some(bell) = state.bells.get(&id) {
                bell.notify_all();
            }
        }
        let next = state.queues.next_event();
        if next.is_some_and(|next| state.timer_us.is_none_or(|set| next < set)) {
            state.timer_us = next;
            self.changed.notify_one();
        }
    }

    /// Do what is due, until the folder is to be closed.
    fn turn(&self) {
        let mut state = self.lock();
        while !state.closing {
            state.timer_us = state.queues.next_event();
            let now = clock::now();
            let left_us = match state.timer_us {
                Some(next_us) => next_us.saturating_sub(now.steady_us),
                None => u64::MAX,
            };
            if left_us > 0 {
                let waited = self
                    .changed
                    .wait_timeout(state, Duration::from_micros(left_us));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Err(error) = state.queues.turn(now) {
                error!("{error}");
            }
            self.settle(&mut state);
        }
    }
}

impl Shared {
    pub(super) fn open(
        folder: &Path,
        place: PathBuf,
        options: Options,
    ) -> Result<Arc<Self>, QueueError> {
        let config = options.read_config()?;
        let limits = config.limits();
        let storage = JournalStorage::open(folder, limits.item_bytes).map_err(|source| {
            let path = folder.to_owned();
            match source.kind() {
                std::io::ErrorKind::WouldBlock => QueueError::Busy { path },
                _ => QueueError::Folder { path, source },
            }
        })?;
        let queues = Queues::open(storage, config, clock::now())?.with_limits(QueuesLimits {
            queues: limits.queues,
            opens_per_connection: usize::MAX,
            memory_bytes: limits.memory_items(),
            ..QueuesLimits::default()
        });
        let core = Arc::new(Core {
            state: Mutex::new(State {
                queues,
                bells: HashMap::new(),
                timer_us: None,
                closing: false,
            }),
            changed: Condvar::new(),
        });
        let turned = Arc::clone(&core);
        let turning = Builder::new()
            .name("millstream-queues".to_owned())
            .spawn(move || turned.turn())
            .map_err(|source| QueueError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        Ok(Arc::new(Shared {
            core,
            turning: Some(turning),
            folder: folder.to_owned(),
            options,
            item_bytes_max: limits.item_bytes,
            process: std::process::id(),
            _entry: Entry(place),
        }))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.core.lock()
    }

    /// A child has a copy of the queues that nobody keeps up to date.
    #[inline]
    pub(super) fn check_process(&self) -> Result<(), QueueError> {
        match std::process::id() == self.process {
            true => Ok(()),
            false => Err(QueueError::Forked),
        }
    }

    /// Do something with the queues, at one moment.
    #[inline]
    pub(super) fn touch<T>(
        &self,
        touch: impl FnOnce(&mut Queues<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        self.touched(touch)?.1
    }

    /// The same for what puts items: they are durable, as their policies say, before this returns. Others have the queues
    /// during the sync, and who syncs at the same time shares it.
    #[inline]
    pub(super) fn touch_and_sync<T>(
        &self,
        touch: impl FnOnce(&mut Queues<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        let (mut state, outcome) = self.touched(touch)?;
        let unsynced = state.queues.take_unsynced();
        drop(state);
        sync(unsynced)?;
        outcome
    }

    /// Nobody else has the queues until what it gives is dropped.
    #[inline]
    fn touched<T>(
        &self,
        touch: impl FnOnce(&mut Queues<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<(MutexGuard<'_, State>, Result<T, QueueError>), QueueError> {
        self.check_process()?;
        let mut state = self.lock();
        let outcome = touch(&mut state.queues, clock::now());
        self.core.settle(&mut state);
        Ok((state, outcome))
    }

    /// Sync a queue and its fan-out queues; others have the queues meanwhile.
    pub(super) fn sync_logs(&self, name: &str) -> Result<(), QueueError> {
        self.check_process()?;
        let logs = self.lock().queues.logs_of(name);
        sync(logs)
    }

    /// Sleep until somebody may have ended the wait of this connection, `limit` at most.
    pub(super) fn sleep(&self, id: ConnectionId, limit: Duration) {
        let mut state = self.lock();
        if state.queues.is_waiting(id) {
            let bell = Arc::clone(state.bells.entry(id).or_default());
            let waited = bell.wait_timeout(state, limit);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.bells.remove(&id);
        }
    }
}

fn sync(logs: Vec<Unsynced<JournalStorage>>) -> Result<(), QueueError> {
    for (queue, log) in logs {
        Syncing::sync(&log).map_err(|cause| QueueError::Storage {
            queue: queue.to_string(),
            cause,
        })?;
    }
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.lock().closing = true;
            self.core.changed.notify_one();
            // It panics only if the queues are at fault, and has said so.
            let _ = self.turning.take().map(JoinHandle::join);
            if let Err(error) = self.lock().queues.sync_all() {
                error!("{error}");
            }
        }
    }
}

/// Taken back when a folder is closed.
struct Entry(PathBuf);

impl Drop for Entry {
    fn drop(&mut self) {
        registry::remove(&self.0);
    }
}
