//! What all tasks of the server share, on one thread.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tracing::error;

use super::attempts::Attempts;
use super::descriptors;
use super::files::LiveSettings;
use super::options::ServerOptions;
use crate::broker::Broker;
use crate::clock;
use crate::connection::ConnectionId;
use crate::storage::JournalStorage;

/// What a signal or a client asks of the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Reload,
    Stop,
}

pub(super) struct Core {
    state: RefCell<State>,
    pub(super) options: ServerOptions,
    commands: mpsc::UnboundedSender<Command>,
    /// Somebody waits for a commit.
    pub(super) commit_wanted: Notify,
    /// The next event of the queues is earlier than it was.
    pub(super) timer_changed: Notify,
    /// Something was read while nobody looked for more.
    pub(super) input_arrived: Notify,
    /// The time for which to look for more may have changed.
    pub(super) spin_changed: Notify,
    /// A connection has ended.
    ended: Notify,
    stopping: Cell<bool>,
}

/// What a task may touch between two points at which it waits.
pub(super) struct State {
    pub(super) broker: Broker<JournalStorage>,
    /// What was read from the files of the server last.
    pub(super) live: LiveSettings,
    /// The longest item that the journals take, fixed when they were opened.
    pub(super) item_bytes_max: usize,
    /// How many file descriptors this process may have.
    pub(super) descriptors_max: u64,
    /// Into which every connection reads.
    pub(super) buffer: Box<[u8]>,
    /// By connection number.
    pub(super) entries: Vec<Option<ConnectionEntry>>,
    pub(super) connections: usize,
    /// Commits begun: what is appended now belongs to the next, whose number this is.
    pub(super) commits_begun: u64,
    /// Commits done.
    pub(super) commits: u64,
    /// Those that failed: nothing that they were to make durable may be acknowledged.
    pub(super) failed_commits: Vec<u64>,
    /// Tasks and the commits that they wait for.
    pub(super) uncommitted: Vec<(u64, Waker)>,
    /// How often something was read from a connection.
    pub(super) reads: u64,
    /// What that was when a commit began and no other was under way.
    pub(super) reads_before: u64,
    /// Nobody waits to be told that something was read: somebody looks for it, or is not to.
    pub(super) spinning: bool,
    /// From where wrong passwords came.
    pub(super) attempts: Attempts,
    /// For when the timer is set.
    pub(super) timer_us: Option<u64>,
}

/// What others know about a connection.
pub(super) struct ConnectionEntry {
    pub(super) waker: Waker,
    /// The queues have ended its wait.
    pub(super) woken: bool,
    /// It must end: it has used up its time.
    pub(super) timed_out: bool,
    /// Until when what it does now may last.
    pub(super) until_us: u64,
}

const BUFFER_BYTES: usize = 64 << 10;

impl Core {
    pub(super) fn new(
        broker: Broker<JournalStorage>,
        live: LiveSettings,
        options: ServerOptions,
        commands: mpsc::UnboundedSender<Command>,
    ) -> Self {
        Core {
            state: RefCell::new(State {
                broker,
                item_bytes_max: live.limits.item_bytes,
                live,
                descriptors_max: u64::MAX,
                buffer: vec![0; BUFFER_BYTES].into(),
                entries: Vec::new(),
                connections: 0,
                commits_begun: 0,
                commits: 0,
                failed_commits: Vec::new(),
                uncommitted: Vec::new(),
                reads: 0,
                reads_before: 0,
                spinning: true,
                attempts: Attempts::default(),
                timer_us: None,
            }),
            options,
            commands,
            commit_wanted: Notify::new(),
            timer_changed: Notify::new(),
            input_arrived: Notify::new(),
            spin_changed: Notify::new(),
            ended: Notify::new(),
            stopping: Cell::new(false),
        }
    }

    /// Touch what is shared. Never across a point at which a task waits, so that nobody else has it.
    #[inline]
    pub(super) fn with<T>(&self, touch: impl FnOnce(&mut State) -> T) -> T {
        touch(&mut self.state.borrow_mut())
    }

    /// After the queues were touched: wake whose wait has ended, and set the timer.
    #[inline]
    pub(super) fn wake_and_set_timer(&self, state: &mut State) {
        for id in state.broker.take_woken() {
            state.wake(id);
        }
        let next = state.broker.next_event();
        if let Some(next) = next
            && state.timer_us.is_none_or(|set| next < set)
        {
            state.timer_us = Some(next);
            self.timer_changed.notify_one();
        }
    }

    /// Something was read, and more may come soon.
    #[inline]
    pub(super) fn note_read(&self, state: &mut State) {
        state.reads += 1;
        if !std::mem::replace(&mut state.spinning, true) {
            self.input_arrived.notify_one();
        }
    }

    pub(super) fn shut_down(&self) {
        // Nobody listens any more once the server stops.
        let _ = self.commands.send(Command::Stop);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(super) fn connection_ended(&self) {
        self.ended.notify_one();
    }

    /// Let connections finish what has arrived, then make everything durable.
    pub(super) async fn stop(&self, limit: Duration) {
        self.stopping.set(true);
        self.with(|state| {
            state.broker.end_all_waits();
            self.wake_and_set_timer(state);
            state
                .entries
                .iter()
                .flatten()
                .for_each(|entry| entry.waker.wake_by_ref());
        });
        let all_ended = async {
            while self.with(|state| state.connections) > 0 {
                self.ended.notified().await;
            }
        };
        let _ = tokio::time::timeout(limit, all_ended).await;
        self.with(|state| {
            // Whoever is still there loses its connection: what it has open goes back first.
            for index in 0..state.entries.len() {
                state
                    .broker
                    .disconnect(ConnectionId(index as u32), clock::now());
            }
            if let Err(error) = state.broker.sync_all() {
                error!("{error}");
            }
        });
    }
}

impl State {
    /// How many connections there may be at present.
    pub(super) fn connections_max(&self) -> usize {
        let possible =
            descriptors::connections_max(self.descriptors_max, self.broker.open_queues());
        self.live.limits.connections.min(possible)
    }

    #[inline]
    pub(super) fn entry(&mut self, id: ConnectionId) -> Option<&mut ConnectionEntry> {
        self.entries.get_mut(id.index())?.as_mut()
    }

    fn wake(&mut self, id: ConnectionId) {
        if let Some(entry) = self.entry(id) {
            entry.woken = true;
            entry.waker.wake_by_ref();
        }
    }
}
