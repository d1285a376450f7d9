//! All queues of a server or a process, and the connections that put, take and wait.
//!
//! The broker does no I/O of its own and reads no clock. Its owner does the following:
//!
//! 1. It passes the time with each call.
//! 2. It calls [`run_due`](Broker::run_due) when [`next_event`](Broker::next_event) is due.
//! 3. It calls [`commit`](Broker::commit) before an acknowledgement is sent.
//! 4. It resumes the connections that [`take_woken`](Broker::take_woken) names, whose wait has ended.
//!
//! The invariant: while a connection waits for an item, its queue has no item ready.
//!
//! ```
//! use millstream_queue::config::Config;
//! use millstream_queue::protocol::{GetKey, SetKey};
//! use millstream_queue::broker::{Broker, GetOutcome};
//! use millstream_queue::storage::MemoryStorage;
//! use millstream_queue::{Moment, NewItem};
//!
//! let now = Moment { wall_ms: 1_700_000_000_000, steady_us: 0 };
//! let mut broker = Broker::open(MemoryStorage::new(1024), Config::default(), now)?;
//! let (producer, consumer) = (broker.connect(), broker.connect());
//! let key = GetKey { name: "jobs", wait_ms: 500, ..GetKey::default() };
//! assert_eq!(broker.get(consumer, &key, now)?, GetOutcome::Waiting);
//!
//! broker.put(&SetKey { name: "jobs", ..SetKey::default() }, &NewItem { body: b"first", ..NewItem::default() }, now)?;
//! assert_eq!(broker.take_woken(), [consumer]);
//! let Some(GetOutcome::Item(item)) = broker.resume(consumer, &key, now)? else { panic!("the wait has ended") };
//! assert_eq!(&*item.body, b"first");
//! # broker.disconnect(producer, millstream_queue::broker::EndedBy::Client, now);
//! # Ok::<(), millstream_queue::QueueError>(())
//! ```

mod batch;
mod closed;
mod connection;
pub(crate) mod counters;
mod creating;
#[cfg(feature = "server")]
pub mod figures;
mod get;
mod kept;
mod lend;
mod once;
mod put;
mod redrive;
mod several;
#[cfg(feature = "server")]
pub(crate) mod snapshot;
mod stats;
mod suspend;
mod timers;
mod waits;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tracing::info;

use self::closed::ClosedQueues;
use self::connection::{Connection, Place, QueueId, Wait};
pub use self::get::{Confirmation, GetOutcome};
pub use self::put::{PutOutcome, Refusal};
pub use self::redrive::REDRIVE_ITEMS_MAX;
pub(crate) use self::redrive::Redrive;
use crate::broker::counters::{Counters, Latencies};
use crate::config::{Config, Settings};
use crate::connection::ConnectionId;
use crate::error::{Cause, QueueError};
use crate::moment::Moment;
use crate::name;
use crate::queue::Queue;
use crate::queue::memory_budget::MemoryBudget;
use crate::round::{self, Round};
use crate::storage::{Log, Storage};

/// What a server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Every request.
    #[default]
    Up,
    /// No sets.
    ReadOnly,
    /// Neither sets nor gets.
    Quiescent,
}

/// The limits of all queues together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerLimits {
    /// The number of queues.
    pub queues: usize,
    /// The number of items that one connection may have open in all queues together.
    pub opens_per_connection: usize,
    /// The memory of all queues together, in bytes. Ready items beyond it stay on disk until they are served. Beyond
    /// it, a connection that has an item open cannot open another.
    pub memory_bytes: u64,
    /// The number of open logs. Each takes up to four descriptors. Other logs are opened when their queues are
    /// used.
    pub open_logs: usize,
    /// The work that is done before other connections are served, in items: what there is beyond it is done in further
    /// rounds.
    pub round_items: usize,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        BrokerLimits {
            queues: 10_000,
            opens_per_connection: 10_000,
            memory_bytes: u64::MAX,
            open_logs: OPEN_LOGS,
            round_items: round::ITEMS,
        }
    }
}

/// The number of logs that are opened together at a start.
const OPEN_AT_ONCE: usize = 256;

/// The default number of open logs: they take less than 1,000 descriptors.
const OPEN_LOGS: usize = 192;

/// The side that ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The client, or its machine, or the network: the item that it opened first counts as delivered in vain.
    Client,
    /// The server, which stops or no longer accepts the client: its open items are returned as if they had not been
    /// delivered.
    Server,
}

/// A queue whose log must be synced.
pub(crate) type Unsynced<S> = (Arc<str>, <<S as Storage>::Log as Log>::Syncing);

/// All queues.
#[derive(Debug)]
pub struct Broker<S: Storage> {
    storage: S,
    config: Config,
    limits: BrokerLimits,
    /// The memory of all queues.
    memory: MemoryBudget,
    status: Status,
    /// Whether the log has the warning about a client that takes a dot for a consumer group.
    has_warned: bool,
    started: Moment,
    names: HashMap<Arc<str>, QueueId, foldhash::fast::RandomState>,
    slots: Vec<Slot<S::Log>>,
    free_slots: Vec<u32>,
    /// The closed queues, with the reasons.
    closed: ClosedQueues,
    connections: Vec<Option<Connection>>,
    free_connections: Vec<u32>,
    /// The times at which waits end.
    waits: BTreeSet<(u64, ConnectionId)>,
    woken: Vec<ConnectionId>,
    /// The times at which queues have timed work.
    timers: BTreeSet<(u64, u32)>,
    /// Queues that must be synced before anything is acknowledged.
    dirty: Vec<QueueId>,
    /// An acknowledgement that promises durability is pending.
    commit_wanted: bool,
    /// The queues that are being created, and the connections that wait for any of them.
    creating: Vec<QueueId>,
    creators: Vec<ConnectionId>,
    counters: Counters,
    latencies: Latencies,
    targets: Vec<QueueId>,
}

#[derive(Debug)]
struct Slot<L> {
    generation: u32,
    queue: Option<Queue<L>>,
    /// The fan-out queues that get a copy of each item.
    children: Vec<QueueId>,
    timer: Option<u64>,
    dirty: bool,
}

impl<S: Storage> Broker<S> {
    /// Opens all queues in the storage. A damaged queue stays closed, see [`closed`](Self::closed).
    ///
    /// # Errors
    /// The storage cannot be listed.
    pub fn open(storage: S, config: Config, now: Moment) -> Result<Self, QueueError> {
        let mut names = storage.names().map_err(QueueError::Listing)?;
        let mut broker = Broker {
            storage,
            config,
            limits: BrokerLimits::default(),
            memory: MemoryBudget::default(),
            status: Status::Up,
            has_warned: false,
            started: now,
            names: HashMap::default(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            closed: ClosedQueues::default(),
            connections: Vec::new(),
            free_connections: Vec::new(),
            waits: BTreeSet::new(),
            woken: Vec::new(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            commit_wanted: false,
            creating: Vec::new(),
            creators: Vec::new(),
            counters: Counters::default(),
            latencies: Latencies::default(),
            targets: Vec::new(),
        };
        // A queue comes before its fan-out queues.
        names.sort_unstable();
        for some in names.chunks(OPEN_AT_ONCE) {
            for (name, log) in some.iter().zip(broker.storage.open_many(some)) {
                // The limit holds for new queues only: no existing queue is lost.
                let opened = broker.restore(name, log, now);
                if let Err(error) = opened.map(|queue| broker.add_queue(queue, Vec::new(), now)) {
                    broker.closed.insert(name.clone(), &error, now);
                }
                broker.limit_open_logs(now);
            }
        }
        for name in broker.names() {
            broker.take_kept(&name, now);
        }
        broker.subscribe(now);
        broker.counters = Counters::default();
        Ok(broker)
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(mut self, limits: BrokerLimits) -> Self {
        self.set_limits(limits);
        self
    }

    /// Sets the limits. Existing queues and open items stay.
    pub fn set_limits(&mut self, limits: BrokerLimits) {
        self.limits = limits;
        self.memory.set_max(limits.memory_bytes);
    }

    /// The names of all open queues, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.names.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// How many queues are open.
    pub fn open_queues(&self) -> usize {
        self.names.len()
    }

    /// The memory of all queues, in bytes: ready and open items, with about 96 bytes for each.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// The number of items of a queue that are ready, in the backlog or delayed.
    pub fn items(&self, name: &str) -> Option<u64> {
        Some(self.queue(*self.names.get(name)?)?.items())
    }

    /// What the server accepts.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Sets what the server accepts. A quiescent server ends all waits, so that no aborted item is delivered.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
        if status == Status::Quiescent {
            self.end_all_waits();
        }
    }

    /// The counters. The caller adds the bytes that it reads and writes.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The latencies. The caller records them.
    pub fn latencies(&mut self) -> &mut Latencies {
        &mut self.latencies
    }

    /// Sets the configuration. Existing items keep their expiry.
    pub fn configure(&mut self, config: Config, now: Moment) {
        self.config = config;
        for index in 0..self.slots.len() {
            if let Some(queue) = self.slots[index].queue.as_mut() {
                queue.settings = self.config.settings(&queue.name);
                self.set_timer(index as u32, now);
            }
        }
        self.subscribe(now);
    }

    /// Creates the fan-out queues that the configuration names.
    fn subscribe(&mut self, now: Moment) {
        for name in self.config.subscribers() {
            let known = self.names.contains_key(name.as_str());
            if known || self.check_not_closed(&name).is_err() {
                continue;
            }
            if let Err(error) = self.create(&name, now) {
                self.closed.insert(name, &error, now);
            }
        }
    }

    /// Adds a connection.
    pub fn connect(&mut self) -> ConnectionId {
        self.counters.total_connections += 1;
        match self.free_connections.pop() {
            Some(index) => {
                self.connections[index as usize] = Some(Connection::default());
                ConnectionId(index)
            }
            None => {
                self.connections.push(Some(Connection::default()));
                ConnectionId(self.connections.len() as u32 - 1)
            }
        }
    }

    /// Removes a connection: its open items are requeued, and its wait ends.
    pub fn disconnect(&mut self, id: ConnectionId, ended: EndedBy, now: Moment) {
        let Some(connection) = self.connections.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        self.free_connections.push(id.0);
        self.leave(id, connection.wait, &connection.also);
        let granted = match connection.wait {
            Wait::Granted { queue, id } => Some((queue, id)),
            _ => None,
        };
        if let Some((queue, item)) = granted {
            if let Some(queue) = self.queue_mut(queue) {
                queue.undo_open(item);
            }
            self.dispatch(queue, now);
        }
        self.requeue_opens(id, connection.opens, ended, now);
    }

    /// Requeues what a connection had open. Of each queue the item that it opened first is the one that it worked on;
    /// with `count_failures = "all"` it worked on all of them.
    fn requeue_opens(
        &mut self,
        by: ConnectionId,
        places: impl IntoIterator<Item = Place>,
        ended: EndedBy,
        now: Moment,
    ) {
        let mut failed = Vec::new();
        for place in places {
            let id = place.queue;
            // An item whose time was over may be open elsewhere.
            let Some(item) = place.item.filter(|_| self.is_open(by, &place)) else {
                continue;
            };
            let Some(queue) = self.queue_mut(id) else {
                continue;
            };
            let is_first = !failed.contains(&id);
            if ended == EndedBy::Client && (is_first || queue.settings.count_all_failures) {
                failed.push(id);
                queue.requeue(item, None, now);
            } else {
                queue.give_back(item);
            }
            self.dispatch(id, now);
        }
    }

    /// The connections whose wait has ended since the last call: [`resume`](Self::resume) returns the result.
    pub fn take_woken(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.woken)
    }

    /// Whether an acknowledgement since the last call promises durability, or a sync is due: the caller must
    /// [`commit`](Self::commit) before it is sent.
    #[inline]
    pub fn take_commit_wanted(&mut self) -> bool {
        std::mem::take(&mut self.commit_wanted)
    }

    /// Ends all waits, without an item.
    pub fn end_all_waits(&mut self) {
        while let Some(&(_, id)) = self.waits.first() {
            let Some(wait) = self.connection(id).map(|connection| connection.wait) else {
                break;
            };
            self.remove_waiter(id, wait);
            self.end_wait(id, Wait::Ended);
        }
    }

    /// Makes everything durable, whatever the policies are.
    ///
    /// # Errors
    /// A sync failed; the other queues are durable.
    pub fn sync_all(&mut self) -> Result<(), QueueError> {
        let mut outcome = Ok(());
        for queue in self.slots.iter_mut().filter_map(|slot| slot.queue.as_mut()) {
            outcome = outcome.and(queue.sync());
        }
        outcome
    }

    /// The logs that [`commit`](Self::commit) would sync, for a caller that syncs them without holding the broker.
    pub(crate) fn take_unsynced(&mut self) -> Vec<Unsynced<S>> {
        self.commit_wanted = false;
        let dirty = std::mem::take(&mut self.dirty);
        let logs = dirty.into_iter().filter_map(|id| {
            let slot = self.slots.get_mut(id.slot as usize)?;
            if slot.generation != id.generation {
                return None;
            }
            slot.dirty = false;
            let queue = slot.queue.as_ref()?;
            Some((Arc::clone(&queue.name), queue.syncing()))
        });
        logs.collect()
    }

    /// A sync of what [`take_unsynced`](Self::take_unsynced) returned has failed.
    pub(crate) fn sync_failed(&mut self, name: &str) {
        if let Some(&id) = self.names.get(name)
            && let Some(queue) = self.queue_mut(id)
        {
            queue.sync_failed();
        }
    }

    /// Syncs the queues that must be synced: one sync for all changes since the last.
    ///
    /// # Errors
    /// A sync failed: no change since the last commit may be acknowledged.
    pub fn commit(&mut self) -> Result<(), QueueError> {
        let mut outcome = Ok(());
        for id in std::mem::take(&mut self.dirty) {
            let slot = self.slots.get_mut(id.slot as usize);
            let Some(slot) = slot.filter(|slot| slot.generation == id.generation) else {
                continue;
            };
            slot.dirty = false;
            if let Some(Err(error)) = slot.queue.as_mut().map(Queue::sync) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Deletes a queue, open or closed, with all its items. Returns whether it existed. A fan-out queue that is closed
    /// begins anew, empty: what could not be read of it is given up, not its subscription.
    ///
    /// # Errors
    /// The storage fails: the queue exists again after a restart.
    pub fn delete(&mut self, name: &str, now: Moment) -> Result<bool, QueueError> {
        let Some(id) = self.names.remove(name) else {
            if !self.closed.may_delete(name)? {
                return Ok(false);
            }
            self.remove_log(name)?;
            self.closed.remove(name);
            self.counters.queue_deletes += 1;
            if name::parent(name).is_some() {
                self.create(name, now)?;
            }
            return Ok(true);
        };
        self.counters.queue_deletes += 1;
        self.free_slot(id, name);
        self.remove_log(name)?;
        Ok(true)
    }

    fn remove_log(&mut self, name: &str) -> Result<(), QueueError> {
        self.storage
            .remove(name)
            .map_err(|cause| QueueError::Storage {
                queue: name.to_owned(),
                cause,
            })
    }

    /// The closed queues: name, and reason.
    pub fn closed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.closed.iter()
    }

    /// A closed queue must not pass for an empty one.
    #[cold]
    pub(crate) fn check_not_closed(&self, name: &str) -> Result<(), QueueError> {
        self.closed.check_not_closed(name)
    }

    /// Removes all items of a queue except the open ones. Returns whether the queue exists.
    ///
    /// # Errors
    /// The queue is closed, or the storage fails; the items are still there.
    pub fn flush(&mut self, name: &str, now: Moment) -> Result<bool, QueueError> {
        let Some(&id) = self.names.get(name) else {
            self.check_not_closed(name)?;
            return Ok(false);
        };
        let flushed = self.queue_mut(id).map(Queue::flush);
        // Its log may have been opened.
        self.set_timer(id.slot, now);
        flushed.transpose().map(|flushed| flushed.is_some())
    }

    /// Removes items of a queue that have expired, until the round is over. Returns their number, and whether there may
    /// be more.
    pub(crate) fn flush_expired(
        &mut self,
        name: &str,
        now: Moment,
        round: &mut Round,
    ) -> (u64, bool) {
        round.took(round::QUEUE);
        let Some(&id) = self.names.get(name) else {
            return (0, false);
        };
        let Some(queue) = self.queue_mut(id) else {
            return (0, false);
        };
        // A queue that cannot be read is not tried again for this request.
        let swept = queue.sweep_now(now, round);
        let is_unfinished = swept.is_ok() && queue.is_unfinished();
        self.dispatch(id, now);
        (swept.unwrap_or(0) as u64, is_unfinished)
    }

    /// A round of work.
    #[inline]
    pub(crate) fn round(&self) -> Round {
        Round::of(self.limits.round_items)
    }

    fn queue(&self, id: QueueId) -> Option<&Queue<S::Log>> {
        self.slots
            .get(id.slot as usize)
            .filter(|slot| slot.generation == id.generation)?
            .queue
            .as_ref()
    }

    #[inline]
    fn queue_mut(&mut self, id: QueueId) -> Option<&mut Queue<S::Log>> {
        self.slots
            .get_mut(id.slot as usize)
            .filter(|slot| slot.generation == id.generation)?
            .queue
            .as_mut()
    }

    /// The queue of this name, created if necessary.
    #[inline]
    fn get_or_create(&mut self, name: &str, now: Moment) -> Result<QueueId, QueueError> {
        match self.names.get(name) {
            Some(&id) => Ok(id),
            None => self.create(name, now),
        }
    }

    #[cold]
    fn create(&mut self, name: &str, now: Moment) -> Result<QueueId, QueueError> {
        let reopens = self.closed.may_reopen(name, now);
        if !reopens {
            self.check_not_closed(name)?;
        }
        name::check(name.as_bytes()).map_err(|fault| QueueError::Name {
            name: name.to_owned(),
            fault,
        })?;
        if !reopens && self.names.len() >= self.limits.queues {
            return Err(QueueError::TooManyQueues(self.limits.queues));
        }
        let opened = self.open_one(name, now);
        match &opened {
            Ok(_) if reopens => {
                let skipped = self.closed.remove(name);
                info!("queue \"{name}\" is open again; it got no copy of {skipped} item(s)");
            }
            Err(error) if reopens => self.closed.insert(name.to_owned(), error, now),
            _ => {}
        }
        if opened.is_ok() {
            self.take_kept(name, now);
        }
        opened
    }

    /// Opens or creates a queue.
    fn open_one(&mut self, name: &str, now: Moment) -> Result<QueueId, QueueError> {
        let queue = self.open_queue(name, now)?;
        let children = self.children_of(name);
        let is_being_created = queue.is_being_created();
        let id = self.add_queue(queue, children, now);
        if is_being_created {
            self.creating.push(id);
        }
        Ok(id)
    }

    fn open_queue(&mut self, name: &str, now: Moment) -> Result<Queue<S::Log>, QueueError> {
        let opened = self.storage.open(name);
        self.restore(name, opened, now)
    }

    /// The queue of a log that was opened.
    fn restore(
        &mut self,
        name: &str,
        opened: Result<S::Log, Cause>,
        now: Moment,
    ) -> Result<Queue<S::Log>, QueueError> {
        let opened = opened.and_then(|mut log| {
            // A fan-out queue gets copies from its first mention on, after a restart too.
            if name::parent(name).is_some() && !log.exists() && !log.begin_create() {
                log.create()?;
            }
            Ok(log)
        });
        let log = opened.map_err(|cause| QueueError::Storage {
            queue: name.to_owned(),
            cause,
        })?;
        let name: Arc<str> = name.into();
        let settings = self.config.settings(&name);
        Queue::restore(name, settings, log, &self.memory, now)
    }

    /// Adds an open queue. `children` are its fan-out queues.
    fn add_queue(&mut self, queue: Queue<S::Log>, children: Vec<QueueId>, now: Moment) -> QueueId {
        let name = Arc::clone(&queue.name);
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                queue: None,
                children: Vec::new(),
                timer: None,
                dirty: false,
            });
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.queue = Some(queue);
        entry.children = children;
        let id = QueueId {
            slot,
            generation: entry.generation,
        };
        if let Some(parent) = name::parent(&name).and_then(|parent| self.names.get(parent)) {
            self.slots[parent.slot as usize].children.push(id);
        }
        self.names.insert(name, id);
        self.counters.queue_creates += 1;
        self.set_timer(slot, now);
        id
    }

    fn children_of(&self, name: &str) -> Vec<QueueId> {
        self.names
            .iter()
            .filter(|(child, _)| name::parent(child) == Some(name))
            .map(|(_, id)| *id)
            .collect()
    }

    /// The settings of a queue.
    fn settings(&self, id: QueueId) -> Option<&Settings> {
        self.queue(id).map(|queue| &queue.settings)
    }
}
