//! A directory of queues that is open in this process: the broker under a lock, the threads that wait for it, and a
//! thread for timed work.
//!
//! The invariant: after each change of the broker the threads whose wait has ended are notified, and the timer thread
//! sleeps no longer than until the next timed event.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millstream_journal::chain;
use millstream_journal::storage::create_dir_durably;
use tracing::error;

use super::options::Options;
use super::registry::{Registered, Registry};
use crate::broker::{Broker, BrokerLimits, Unsynced};
use crate::clock;
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::storage::{JournalStorage, Syncing};

/// The directories that this process has open.
static OPEN: Registry<OpenDirectory> = Registry::new();

/// A handle to an open directory. It is closed with the last handle.
pub(super) type Handle = Arc<Registered<OpenDirectory>>;

/// A directory that is open.
pub(crate) struct OpenDirectory {
    shared: Arc<Shared>,
    timer_thread: Option<JoinHandle<()>>,
    folder: PathBuf,
    options: Options,
    /// The longest item, in bytes.
    pub(super) item_bytes_max: usize,
    /// The process that opened it.
    process: u32,
}

/// What the timer thread uses as well.
struct Shared {
    state: Mutex<State>,
    /// Notified when the next timed event is earlier than before, or the directory is being closed.
    timer_changed: Condvar,
}

pub(super) struct State {
    pub(super) broker: Broker<JournalStorage>,
    /// The threads that sleep until their wait has ended.
    sleepers: HashMap<ConnectionId, Arc<Condvar>>,
    /// The time until which the timer thread sleeps.
    timer_us: Option<u64>,
    closing: bool,
}

impl std::fmt::Debug for OpenDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenDirectory({})", self.folder.display())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After each change of the broker: notifies the threads whose wait has ended, and sets the timer.
    #[inline]
    fn notify(&self, state: &mut State) {
        for id in state.broker.take_woken() {
            if let Some(sleeper) = state.sleepers.get(&id) {
                sleeper.notify_all();
            }
        }
        let next = state.broker.next_event();
        if next.is_some_and(|next| state.timer_us.is_none_or(|set| next < set)) {
            state.timer_us = next;
            self.timer_changed.notify_one();
        }
    }

    /// The timer thread: does the timed work of the broker until the directory is closed.
    fn run_timer(&self) {
        let mut state = self.lock();
        while !state.closing {
            state.timer_us = state.broker.next_event();
            let now = clock::now();
            let left_us = match state.timer_us {
                Some(next_us) => next_us.saturating_sub(now.steady_us),
                None => u64::MAX,
            };
            if left_us > 0 {
                let waited = self
                    .timer_changed
                    .wait_timeout(state, Duration::from_micros(left_us));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Err(error) = state.broker.run_due(now) {
                error!("{}", chain(&error));
            }
            let unsynced = state.broker.take_unsynced();
            self.notify(&mut state);
            if !unsynced.is_empty() {
                drop(state);
                if let Err(error) = self.sync(unsynced) {
                    error!("{}", chain(&error));
                }
                state = self.lock();
            }
        }
    }

    /// Syncs logs. Other threads can use the broker meanwhile.
    fn sync(&self, logs: Vec<Unsynced<JournalStorage>>) -> Result<(), QueueError> {
        let mut outcome = Ok(());
        for (queue, log) in logs {
            if let Err(cause) = Syncing::sync(&log) {
                self.lock().broker.sync_failed(&queue);
                let queue = queue.to_string();
                outcome = outcome.and(Err(QueueError::Storage { queue, cause }));
            }
        }
        outcome
    }
}

impl OpenDirectory {
    /// A handle to this directory, which is created if necessary. Without options: as it is open already, or with the
    /// defaults.
    pub(super) fn attach(folder: &Path, options: Option<&Options>) -> Result<Handle, QueueError> {
        let fault = |source| QueueError::Folder {
            path: folder.to_owned(),
            source,
        };
        create_dir_durably(folder).map_err(fault)?;
        let path = folder.canonicalize().map_err(fault)?;
        let check = |open: &OpenDirectory| match options {
            Some(options) if *options != open.options => Err(QueueError::Differs {
                path: open.folder.clone(),
            }),
            _ => open.check_process(),
        };
        let options = || options.cloned().unwrap_or_default();
        OPEN.open(path, check, || OpenDirectory::open(folder, options()))
    }

    fn open(folder: &Path, options: Options) -> Result<Self, QueueError> {
        let config = options.read_config()?;
        let limits = config.limits();
        let storage = JournalStorage::open(folder, limits.item_bytes).map_err(|source| {
            let path = folder.to_owned();
            match source.kind() {
                std::io::ErrorKind::WouldBlock => QueueError::Busy { path },
                _ => QueueError::Folder { path, source },
            }
        })?;
        let broker = Broker::open(storage, config, clock::now())?.with_limits(BrokerLimits {
            queues: limits.queues,
            opens_per_connection: usize::MAX,
            memory_bytes: limits.memory_items(),
            ..BrokerLimits::default()
        });
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                broker,
                sleepers: HashMap::new(),
                timer_us: None,
                closing: false,
            }),
            timer_changed: Condvar::new(),
        });
        let for_timer = Arc::clone(&shared);
        let timer_thread = Builder::new()
            .name("millstream-queues".to_owned())
            .spawn(move || for_timer.run_timer())
            .map_err(|source| QueueError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        Ok(OpenDirectory {
            shared,
            timer_thread: Some(timer_thread),
            folder: folder.to_owned(),
            options,
            item_bytes_max: limits.item_bytes,
            process: std::process::id(),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// A process that was forked from the one that opened the directory has a copy of the queues without the timer
    /// thread.
    #[inline]
    pub(super) fn check_process(&self) -> Result<(), QueueError> {
        if std::process::id() == self.process {
            Ok(())
        } else {
            Err(QueueError::Forked)
        }
    }

    /// Calls the broker, at one moment.
    #[inline]
    pub(super) fn with_broker<T>(
        &self,
        call: impl FnOnce(&mut Broker<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        self.call(call)?.1
    }

    /// Calls the broker to put items: they are durable, as the policies of their queues say, when this returns. Other
    /// threads can use the broker during the sync; threads that sync at the same time share one sync.
    #[inline]
    pub(super) fn with_broker_synced<T>(
        &self,
        call: impl FnOnce(&mut Broker<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        let (mut state, outcome) = self.call(call)?;
        let unsynced = state.broker.take_unsynced();
        drop(state);
        self.shared.sync(unsynced)?;
        outcome
    }

    /// Calls the broker and keeps it locked until the guard is dropped.
    #[inline]
    fn call<T>(
        &self,
        call: impl FnOnce(&mut Broker<JournalStorage>, Moment) -> Result<T, QueueError>,
    ) -> Result<(MutexGuard<'_, State>, Result<T, QueueError>), QueueError> {
        self.check_process()?;
        let mut state = self.lock();
        let outcome = call(&mut state.broker, clock::now());
        self.shared.notify(&mut state);
        Ok((state, outcome))
    }

    /// Syncs a queue and its fan-out queues. Other threads can use the broker meanwhile.
    pub(super) fn sync_logs(&self, name: &str) -> Result<(), QueueError> {
        self.check_process()?;
        let logs = self.lock().broker.logs_of(name);
        self.shared.sync(logs)
    }

    /// Sleeps until the wait of this connection may have ended, for `limit` at most.
    pub(super) fn sleep(&self, id: ConnectionId, limit: Duration) {
        let mut state = self.lock();
        if state.broker.is_waiting(id) {
            let sleeper = Arc::clone(state.sleepers.entry(id).or_default());
            let waited = sleeper.wait_timeout(state, limit);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.sleepers.remove(&id);
        }
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.lock().closing = true;
            self.shared.timer_changed.notify_one();
            // The thread panics only because of a bug in the broker, and has logged it.
            let _ = self.timer_thread.take().map(JoinHandle::join);
            if let Err(error) = self.lock().broker.close() {
                error!("{}", chain(&error));
            }
        }
    }
}
