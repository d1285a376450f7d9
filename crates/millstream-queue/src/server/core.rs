//! The state that all tasks of the server share, on one thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use millstream_journal::chain;
use tokio::sync::Notify;
use tracing::error;

use super::attempts::{Attempts, ThrottleKey};
use super::descriptors;
use super::error::ServerError;
use super::files::LiveSettings;
use super::options::ServerOptions;
use super::places::Places;
use crate::address::Address;
use crate::broker::{Broker, EndedBy};
use crate::clock;
use crate::connection::ConnectionId;
use crate::replica::ReplicatedStorage;

pub(super) struct Core {
    state: RefCell<State>,
    pub(super) options: ServerOptions,
    /// Notified when the server must stop.
    stop: Arc<Notify>,
    /// A reply waits for a commit.
    pub(super) commit_wanted: Notify,
    /// The next timed work is earlier than before.
    pub(super) timer_changed: Notify,
    /// Input arrived while no task was spinning.
    pub(super) input_arrived: Notify,
    /// The spin time may have changed.
    pub(super) spin_changed: Notify,
    /// A connection has ended.
    ended: Notify,
    stopping: Cell<bool>,
    /// Why the server must end at once.
    failure: Cell<Option<ServerError>>,
}

/// The state that a task may use between two await points.
pub(super) struct State {
    pub(super) broker: Broker<ReplicatedStorage>,
    /// The settings that were read last.
    pub(super) live: LiveSettings,
    /// The longest item that the journals take, fixed when they are opened.
    pub(super) item_bytes_max: usize,
    /// The number of file descriptors of this process.
    pub(super) descriptors_max: u64,
    /// The buffer into which all connections read.
    pub(super) buffer: Box<[u8]>,
    /// By connection number.
    pub(super) entries: Vec<Option<ConnectionEntry>>,
    pub(super) connections: Places,
    /// The number of commits begun, and the number of the next one, to which new records belong.
    pub(super) commits_begun: u64,
    /// The number of commits completed.
    pub(super) commits: u64,
    /// Failed commits: nothing that relied on them may be acknowledged.
    pub(super) failed_commits: Vec<u64>,
    /// Tasks, and the commits that they wait for.
    pub(super) uncommitted: Vec<(u64, Waker)>,
    /// Whether every answer waits for a commit, since a follower must have what it says.
    pub(super) answers_wait: bool,
    /// No follower has acknowledged for some time: nothing is done until one has.
    pub(super) is_held: bool,
    /// The number of reads from all connections.
    pub(super) reads: u64,
    /// The number of reads when a commit began while no other was running.
    pub(super) reads_before: u64,
    /// Input needs no notification: a task is spinning, or must not spin.
    pub(super) spinning: bool,
    /// The origins of wrong passwords.
    pub(super) attempts: Attempts,
    /// The time at which the timer fires.
    pub(super) timer_us: Option<u64>,
}

/// What other tasks know about a connection.
pub(super) struct ConnectionEntry {
    pub(super) waker: Waker,
    /// The broker has ended its wait.
    pub(super) woken: bool,
    /// It must end: it has timed out.
    pub(super) timed_out: bool,
    /// The time limit of its current state.
    pub(super) until_us: u64,
    /// Whether it may go on beyond that while it has an item open: it has been idle for so long.
    pub(super) may_work: bool,
    /// Since when it has not authenticated, where that is required.
    pub(super) unauthenticated_since_us: Option<u64>,
    /// The address of the client.
    pub(super) peer: Address,
}

const BUFFER_BYTES: usize = 64 << 10;

impl Core {
    pub(super) fn new(
        broker: Broker<ReplicatedStorage>,
        live: LiveSettings,
        options: ServerOptions,
        stop: Arc<Notify>,
    ) -> Self {
        Core {
            state: RefCell::new(State {
                broker,
                item_bytes_max: live.limits.item_bytes,
                live,
                descriptors_max: u64::MAX,
                buffer: vec![0; BUFFER_BYTES].into(),
                entries: Vec::new(),
                connections: Places::default(),
                commits_begun: 0,
                commits: 0,
                failed_commits: Vec::new(),
                uncommitted: Vec::new(),
                answers_wait: false,
                is_held: false,
                reads: 0,
                reads_before: 0,
                spinning: true,
                attempts: Attempts::default(),
                timer_us: None,
            }),
            options,
            stop,
            commit_wanted: Notify::new(),
            timer_changed: Notify::new(),
            input_arrived: Notify::new(),
            spin_changed: Notify::new(),
            ended: Notify::new(),
            stopping: Cell::new(false),
            failure: Cell::new(None),
        }
    }

    /// Uses the shared state. There is no await point inside, so that access is exclusive.
    #[inline]
    pub(super) fn with<T>(&self, touch: impl FnOnce(&mut State) -> T) -> T {
        touch(&mut self.state.borrow_mut())
    }

    /// After each change of the broker: wakes the connections whose wait has ended, and sets the timer.
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

    /// Records a read: more input may follow soon.
    #[inline]
    pub(super) fn note_read(&self, state: &mut State) {
        state.reads += 1;
        if !std::mem::replace(&mut state.spinning, true) {
            self.input_arrived.notify_one();
        }
    }

    pub(super) fn shut_down(&self) {
        self.stop.notify_one();
    }

    /// Ends the server at once: no client gets another answer.
    pub(super) fn fail(&self, error: ServerError) {
        self.failure.set(Some(error));
        self.shut_down();
    }

    pub(super) fn take_failure(&self) -> Option<ServerError> {
        self.failure.take()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    pub(super) fn connection_ended(&self) {
        self.ended.notify_one();
    }

    /// Lets connections finish their input, then makes everything durable.
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
            while self.with(|state| state.connections.all()) > 0 {
                self.ended.notified().await;
            }
        };
        let _ = tokio::time::timeout(limit, all_ended).await;
        self.with(|state| {
            // The remaining connections are closed: their open items are requeued first.
            for index in 0..state.entries.len() {
                state
                    .broker
                    .disconnect(ConnectionId(index as u32), EndedBy::Server, clock::now());
            }
            if let Err(error) = state.broker.close() {
                error!("{}", chain(&error));
            }
        });
    }
}

impl State {
    /// The number of connections that are possible at present.
    pub(super) fn connections_max(&self) -> usize {
        let possible =
            descriptors::connections_max(self.descriptors_max, self.broker.open_queues());
        self.live.limits.connections.min(possible)
    }

    /// Gives a place to a connection from this origin.
    ///
    /// # Errors
    /// Of what there are too many.
    pub(super) fn admit(&mut self, origin: ThrottleKey) -> Result<(), &'static str> {
        let per_address = self.live.limits.connections_per_address;
        if per_address > 0 && self.connections.of(origin) >= per_address {
            return Err("too many open connections from this address");
        }
        if self.connections.all() >= self.connections_max() && !self.end_unauthenticated() {
            return Err("too many open connections");
        }
        self.connections.take(origin);
        Ok(())
    }

    /// Makes room for another connection: the one ends that has not authenticated for the longest time. Returns false
    /// if there is none.
    fn end_unauthenticated(&mut self) -> bool {
        let waiting = self.entries.iter_mut().flatten();
        let waiting = waiting.filter(|entry| !entry.timed_out);
        let waiting = waiting.filter_map(|entry| Some((entry.unauthenticated_since_us?, entry)));
        let Some((_, oldest)) = waiting.min_by_key(|(since_us, _)| *since_us) else {
            return false;
        };
        oldest.timed_out = true;
        oldest.waker.wake_by_ref();
        true
    }

    /// Holds all connections, or lets them go on.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
        if !is_held {
            let entries = self.entries.iter().flatten();
            entries.for_each(|entry| entry.waker.wake_by_ref());
        }
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
