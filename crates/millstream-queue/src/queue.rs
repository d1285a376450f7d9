//! One queue: items in FIFO order, each of which is removed once.
//!
//! An item is in one of four states:
//!
//! - *ready*: in memory, to be served next;
//! - *backlog*: only in the log, and read back when it is next, so that memory is bounded with any backlog;
//! - *delayed*: not served before its time; after it the item is ready, or *due* and only in the log where memory is
//!   full;
//! - *open*: a connection has it and has not confirmed it.
//!
//! Every change that must survive the process is a record of the log. An open read is not recorded: after a crash all
//! open items are in the queue again.
//!
//! The invariant: the log, read from its first record, yields the state of the queue with all open items requeued.

mod ages;
mod compact;
mod counters;
mod delayed;
mod delays;
mod disk_full;
mod due;
mod expiries;
pub(crate) mod ids;
mod lend;
pub(crate) mod memory_budget;
mod once;
mod read_back;
mod ready;
pub(crate) mod refusals;
mod relocations;
mod removed;
mod restore;
mod source_positions;
mod suspend;
mod sweep;
mod syncs;
mod unsynced;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use self::counters::QueueCounters;
use self::delayed::Delayed;
use self::due::Due;
use self::expiries::Expiries;
use self::ids::Ids;
use self::ready::{ITEM_OVERHEAD_BYTES, Ready, bytes_in_memory};
use self::refusals::{Refusals, Refused};
use self::relocations::{Compaction, Relocations};
use self::removed::RemovedIds;
use self::source_positions::SourcePositions;
use self::unsynced::Unsynced;
use crate::config::Settings;
use crate::connection::ConnectionId;
use crate::error::{Cause, QueueError};
use crate::item::history::Reason;
use crate::item::{Item, NewItem};
use crate::moment::Moment;
use crate::queue::memory_budget::MemoryBudget;
use crate::round::Round;
use crate::storage::Log;
use crate::storage::operation::{Head, Operation};

/// The number of items that are read back at once, so that no request waits long for it.
const READ_BACK_ITEMS: usize = 256;

/// One queue over its log.
#[derive(Debug)]
pub(crate) struct Queue<L> {
    pub(crate) name: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) counters: QueueCounters,
    /// Connections that wait for an item, in FIFO order.
    pub(crate) waiters: VecDeque<ConnectionId>,
    log: L,
    ready: Ready,
    backlog: Backlog,
    delayed: Delayed,
    due: Due,
    opens: BTreeMap<u64, Open>,
    /// The memory of all queues, open items included.
    memory: MemoryBudget,
    open_deadlines: BTreeSet<(u64, u64)>,
    relocations: Relocations,
    compaction: Compaction,
    /// The next number of each source of numbered items.
    source_positions: SourcePositions,
    /// The ids of items that are taken once.
    ids: Ids,
    /// Items that must move to another queue.
    dead_letters: Vec<DeadLetter>,
    /// Items that are ready, in the backlog or delayed, and the sum of their lengths.
    items: u64,
    bytes: u64,
    /// The refusals that are not over.
    refusals: Option<Refusals>,
    unsynced: Unsynced,
    last_used_us: u64,
    /// The last round has left work that can be done now.
    is_unfinished: bool,
    /// Of these, a new item has left older ones to remove.
    is_discarding: bool,
    record: Vec<u8>,
}

/// The items that are only in the log.
#[derive(Debug, Default)]
struct Backlog {
    /// The position from which to read.
    position: u64,
    items: u64,
    removed: RemovedIds,
    /// When items expire.
    expiries: Expiries,
    /// The position of the first item and the time at which it was added, if known.
    oldest: Option<(u64, u64)>,
    /// How often items were delivered, if known.
    deliveries: BTreeMap<u64, Deliveries>,
}

impl Backlog {
    /// Forgets what is known of the records before those to read.
    fn forget_before_position(&mut self) {
        self.removed.forget_before(self.position);
        match self.items {
            0 => self.expiries = Expiries::default(),
            _ => self.expiries.forget_before(self.position),
        }
    }
}

/// How often an item was delivered and requeued.
#[derive(Clone, Copy, Debug, Default)]
struct Deliveries {
    count: u32,
    /// The first time, wall clock in milliseconds.
    first_ms: u64,
}

#[derive(Debug)]
struct Open {
    item: Item,
    connection: ConnectionId,
    deadline_us: Option<u64>,
}

/// An item on its way to another queue. It stays in this one until [`Queue::record_removal`] or [`Queue::reinsert`].
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) item: Item,
    pub(crate) to: String,
    pub(crate) reason: Reason,
}

/// The outcome of a search for the next item.
#[derive(Debug)]
pub(crate) enum Next {
    /// The item. It stays in the log until [`Queue::record_removal`].
    Item(Item),
    /// There is none.
    Nothing,
    /// The round is over, and there are more items that have expired: another round must search on.
    Unfinished,
}

/// Whether an item is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Yes,
    TooLarge,
    Full,
}

impl<L> Drop for Queue<L> {
    fn drop(&mut self) {
        let opens = self.opens.values();
        self.memory
            .remove(opens.map(|open| bytes_in_memory(&open.item)).sum());
    }
}

impl<L: Log> Queue<L> {
    /// Its log.
    #[cfg(feature = "server")]
    pub(crate) fn log(&mut self) -> &mut L {
        &mut self.log
    }

    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn in_memory(&self) -> (u64, u64) {
        (
            self.ready.len() as u64,
            self.ready.bytes_in_memory() - self.ready.len() as u64 * ITEM_OVERHEAD_BYTES,
        )
    }

    pub(crate) fn open_items(&self) -> usize {
        self.opens.len()
    }

    /// Whether the log of the queue exists.
    #[inline]
    pub(crate) fn exists(&self) -> bool {
        self.log.exists()
    }

    /// Begins to create the log, or takes it when it is created. Returns whether items must wait for that.
    pub(crate) fn begin_create(&mut self) -> bool {
        self.log.begin_create()
    }

    /// Whether the log is being created.
    pub(crate) fn is_being_created(&self) -> bool {
        self.log.is_being_created()
    }

    /// Creates the log, if it does not exist.
    pub(crate) fn create(&mut self) -> Result<(), QueueError> {
        self.log.create().map_err(|cause| self.fault(cause))
    }

    /// The open items with their ids and connections, the oldest first.
    #[cfg(feature = "server")]
    pub(crate) fn opened_items(&self) -> impl Iterator<Item = (u64, &Item, ConnectionId)> {
        let opens = self.opens.iter();
        opens.map(|(id, open)| (*id, &open.item, open.connection))
    }

    /// The items that wait in memory, the next one first.
    #[cfg(feature = "server")]
    pub(crate) fn ready_items(&self) -> impl Iterator<Item = &Item> {
        self.ready.range(0)
    }

    /// The disk space of the queue, in bytes.
    pub(crate) fn disk_bytes(&mut self) -> u64 {
        self.log.disk_bytes()
    }

    /// How many times a part of the log was pruned.
    pub(crate) fn log_rotations(&self) -> u64 {
        self.compaction.rotations
    }

    /// Whether a new item of this length is admitted.
    #[inline]
    pub(crate) fn admits(&self, length: usize) -> Admission {
        let settings = &self.settings;
        let length = length as u64;
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        if over(settings.max_item_bytes, length) || over(settings.max_bytes, length) {
            return Admission::TooLarge;
        }
        if !settings.discard_old
            && (over(settings.max_items, self.items + 1)
                || over(settings.max_bytes, self.bytes + length))
        {
            return Admission::Full;
        }
        Admission::Yes
    }

    /// Adds a new item at the end, whatever the limits are. `shared` is its body, if another queue holds it already.
    #[inline]
    pub(crate) fn add(
        &mut self,
        new: &NewItem<'_>,
        shared: &mut Option<Arc<[u8]>>,
        now: Moment,
    ) -> Result<u64, QueueError> {
        let head = Head {
            flags: new.flags,
            added_ms: now.wall_ms,
            expiry_ms: self.bounded_expiry_ms(new.expiry_ms, now),
        };
        let due_ms = if new.due_ms > now.wall_ms && new.from.is_none() {
            new.due_ms
        } else {
            0
        };
        let operation = addition(new, head, due_ms);
        let not_durable = self.not_durable();
        let id = self.append(&operation).map_err(|cause| {
            self.compact_if_due();
            self.fault(cause)
        })?;
        if let Some((source, index)) = new.from {
            self.source_positions.set(source, index + 1, id);
        }
        if let Some(key) = new.once {
            self.ids.insert(key, id, now.wall_ms, now);
        }
        self.items += 1;
        self.bytes += new.body.len() as u64;
        self.counters.total_items += 1;
        self.refusals
            .take_if(|refusals| refusals.end(&self.name, now));
        self.last_used_us = now.steady_us;
        self.unsynced.note(&not_durable, now);
        if due_ms != 0 {
            self.delayed.insert(id, due_ms, head.expiry_ms);
        } else if self.backlog.items > 0 || !self.has_memory(new.body.len()) {
            if self.backlog.items == 0 {
                self.backlog.position = id;
            }
            self.backlog.items += 1;
            self.backlog.expiries.insert(id, head.expiry_ms);
        } else {
            let body = shared.get_or_insert_with(|| new.body.into()).clone();
            let mut item = Item::new(id, head, 0, body);
            item.history = new.history.cloned();
            self.ready.push(item);
        }
        Ok(id)
    }

    /// Counts an item that was refused; `words` say by which queue and why.
    #[cold]
    pub(crate) fn refuse(&mut self, why: Refused, words: &dyn Display, now: Moment) {
        self.counters.refused.add(why);
        self.counters.skipped += u64::from(why == Refused::Skipped);
        let refusals = self.refusals.get_or_insert_default();
        refusals.add(why, words, now);
        self.last_used_us = now.steady_us;
    }

    /// Why the disk took no item, unless that is long ago.
    #[cfg(feature = "server")]
    pub(crate) fn fault_of_disk(&self, now: Moment) -> Option<&str> {
        self.refusals.as_ref()?.fault(now)
    }

    /// Whether an item of this length may be in memory.
    #[inline]
    fn has_memory(&self, length: usize) -> bool {
        let length = length as u64;
        self.ready.bytes_in_memory() + length <= self.settings.memory_bytes
            && !self.memory.is_over(length + ITEM_OVERHEAD_BYTES)
    }

    /// The expiry of an item that is added now, `max_age` included.
    #[inline]
    fn bounded_expiry_ms(&self, expiry_ms: u64, now: Moment) -> u64 {
        let Some(age) = self.settings.max_age else {
            return expiry_ms;
        };
        let latest_ms = now.wall_ms.saturating_add((age.as_millis() as u64).max(1));
        match expiry_ms {
            0 => latest_ms,
            _ => latest_ms.min(expiry_ms),
        }
    }

    /// Removes the item of the newest record again.
    pub(crate) fn retract_newest(&mut self, length: usize) {
        let id = self.log.next().saturating_sub(1);
        if !self.delayed.remove(id) && self.ready.pop_newest(id).is_none() {
            self.backlog.items -= 1;
            self.backlog.removed.insert(id);
        }
        self.items -= 1;
        self.bytes -= length as u64;
        self.counters.total_items -= 1;
        self.record_removal(id, length);
    }

    /// Removes the oldest items until the limits hold, or the round is over: then the next one goes on.
    pub(crate) fn discard_old(&mut self, now: Moment, round: &mut Round) -> Result<(), QueueError> {
        let over = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value > limit);
        while over(self.settings.max_items, self.items) || over(self.settings.max_bytes, self.bytes)
        {
            if !round.has_room() {
                (self.is_unfinished, self.is_discarding) = (true, true);
                return Ok(());
            }
            let Next::Item(item) = self.take_oldest(now, round)?.0 else {
                break;
            };
            round.took_item(item.body.len());
            self.record_removal(item.id, item.body.len());
            self.counters.discarded += 1;
        }
        self.is_discarding = false;
        Ok(())
    }

    /// Takes the next item that has not expired, as far as it is found in this round.
    #[inline]
    pub(crate) fn take_next(&mut self, now: Moment, round: &mut Round) -> Result<Next, QueueError> {
        if self.items == 0 {
            return Ok(Next::Nothing);
        }
        self.end_delays(now, round)?;
        loop {
            if self.backlog.items > 0 && self.ready.fifo_is_empty() {
                self.read_back()?;
            }
            if !self.due.is_empty() {
                self.read_due()?;
            }
            let Some(item) = self.ready.pop() else {
                return Ok(Next::Nothing);
            };
            if item.expired(now) {
                if !round.has_room() {
                    self.ready.insert(item);
                    self.is_unfinished = true;
                    return Ok(Next::Unfinished);
                }
                self.left_memory(&item);
                round.took_item(item.body.len());
                self.expire(item);
                continue;
            }
            self.left_memory(&item);
            self.counters.age_ms = now.wall_ms.saturating_sub(item.added_ms);
            self.last_used_us = now.steady_us;
            return Ok(Next::Item(item));
        }
    }

    #[inline]
    fn left_memory(&mut self, item: &Item) {
        self.items -= 1;
        self.bytes -= item.body.len() as u64;
    }

    /// The next item, which stays in the queue.
    pub(crate) fn peek(&mut self, now: Moment, round: &mut Round) -> Result<Next, QueueError> {
        let next = self.take_next(now, round)?;
        if let Next::Item(item) = &next {
            self.reinsert(item.clone());
        }
        Ok(next)
    }

    /// Returns an item that [`take_next`](Self::take_next) took.
    pub(crate) fn reinsert(&mut self, item: Item) {
        self.items += 1;
        self.bytes += item.body.len() as u64;
        self.ready.insert(item);
    }

    /// Records that an item left for good. This never fails: on a full disk the record of the item gets a tombstone.
    /// If the log has failed, the item is in the queue again after a crash.
    #[inline]
    pub(crate) fn record_removal(&mut self, id: u64, length: usize) {
        let position = self.relocations.position(id);
        self.relocations.remove(id);
        let bytes = length as u32;
        if !self.log.is_full() && self.append(&Operation::Remove { id, bytes }).is_ok() {
            if self.items == 0 && self.log.was_full() {
                self.prune_all();
            }
            return self.compact_if_due();
        }
        self.remove_without_room(id, position);
    }

    /// An item that [`take_next`](Self::take_next) took is open for this connection, or leaves for good.
    #[inline]
    pub(crate) fn deliver(&mut self, item: &Item, open_for: Option<ConnectionId>, now: Moment) {
        match open_for {
            Some(connection) => self.open(item.clone(), connection, now),
            None => self.record_removal(item.id, item.body.len()),
        }
    }

    /// Opens an item for a connection until it is closed or requeued.
    pub(crate) fn open(&mut self, item: Item, connection: ConnectionId, now: Moment) {
        let deadline_us = self.deadline_us(None, now);
        if let Some(deadline_us) = deadline_us {
            self.open_deadlines.insert((deadline_us, item.id));
        }
        self.counters.transactions += 1;
        self.insert_open(Open {
            item,
            connection,
            deadline_us,
        });
    }

    /// When an item that is opened or renewed now is requeued. `limit` comes before the queue's own.
    fn deadline_us(&self, limit: Option<Duration>, now: Moment) -> Option<u64> {
        let limit = limit.or(self.settings.open_timeout)?;
        Some(now.steady_us.saturating_add(limit.as_micros() as u64))
    }

    /// Begins the time of an open item anew.
    pub(crate) fn renew_open(&mut self, id: u64, limit: Option<Duration>, now: Moment) {
        let deadline_us = self.deadline_us(limit, now);
        let Some(open) = self.opens.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut open.deadline_us, deadline_us);
        before.inspect(|&before| {
            self.open_deadlines.remove(&(before, id));
        });
        self.open_deadlines
            .extend(deadline_us.map(|deadline| (deadline, id)));
    }

    /// Confirms an open item: it leaves for good.
    pub(crate) fn close(&mut self, id: u64) -> Option<Item> {
        let item = self.take_open(id)?;
        self.record_removal(id, item.body.len());
        Some(item)
    }

    /// Requeues an open item, unless it was delivered too often. It is served again after `delay`; without it after the
    /// time that the queue's retries say.
    pub(crate) fn requeue(&mut self, id: u64, delay: Option<Duration>, now: Moment) {
        let Some(mut item) = self.take_open(id) else {
            return;
        };
        self.counters.canceled_transactions += 1;
        item.came_back(item.deliveries.saturating_add(1), now.wall_ms.max(1));
        let limit = self.settings.max_deliveries.unwrap_or(u32::MAX);
        if item.deliveries < limit {
            let retry = self.settings.retry;
            let delay = delay.or(retry.map(|retry| retry.delay(item.deliveries)));
            if let Some(delay) = delay.filter(|delay| !delay.is_zero())
                && self.defer(&item, delay, now).is_ok()
            {
                return self.compact_if_due();
            }
            // If this cannot be written, a restart allows the item more deliveries.
            let _ = self.append(&Operation::Delivered {
                id,
                count: item.deliveries,
                first_ms: item.first_failed_ms(),
            });
            self.reinsert(item);
            return self.compact_if_due();
        }
        self.retire(item, self.settings.error_queue.clone(), Reason::Failed);
    }

    /// Requeues an open item as if it had never been delivered.
    pub(crate) fn undo_open(&mut self, id: u64) {
        if let Some(item) = self.take_open(id) {
            self.counters.transactions -= 1;
            self.reinsert(item);
        }
    }

    /// Requeues an open item whose consumer did not fail: this delivery does not count.
    pub(crate) fn give_back(&mut self, id: u64) {
        if let Some(item) = self.take_open(id) {
            self.counters.canceled_transactions += 1;
            self.reinsert(item);
        }
    }

    /// The item, if this connection has it open.
    pub(crate) fn opened(&self, id: u64, by: ConnectionId) -> Option<&Item> {
        self.opens
            .get(&id)
            .filter(|open| open.connection == by)
            .map(|open| &open.item)
    }

    /// The connection that has this item open. Items that are lent to a flow are its own.
    pub(crate) fn owner(&self, id: u64) -> Option<ConnectionId> {
        let open = self.opens.get(&id).map(|open| open.connection);
        open.filter(|owner| *owner != ConnectionId::LENT)
    }

    /// Whether items must move to another queue.
    #[inline]
    pub(crate) fn has_dead_letters(&self) -> bool {
        !self.dead_letters.is_empty()
    }

    /// An open item whose open timeout is over.
    pub(crate) fn overdue(&self, now: Moment) -> Option<u64> {
        let &(deadline_us, id) = self.open_deadlines.first()?;
        (deadline_us <= now.steady_us).then_some(id)
    }

    /// Returns the items that must move to another queue.
    pub(crate) fn take_dead_letters(&mut self) -> Vec<DeadLetter> {
        std::mem::take(&mut self.dead_letters)
    }

    /// Removes all items except the open ones.
    pub(crate) fn flush(&mut self) -> Result<(), QueueError> {
        let from = self.log.next();
        let open: Vec<Item> = self.opens.values().map(|open| open.item.clone()).collect();
        let written = open
            .iter()
            .try_for_each(|item| self.rewrite(item, 0))
            .and_then(|()| self.append_reserved(&Operation::Flush { from }));
        match written {
            Ok(_) => self.relocations.flush(from),
            Err(cause) => self.tombstone_all().map_err(|_| self.fault(cause))?,
        }
        self.ready.clear();
        self.delayed = Delayed::default();
        self.due = Due::default();
        self.backlog = Backlog::default();
        (self.items, self.bytes) = (0, 0);
        self.counters.total_flushes += 1;
        self.compact();
        if self.log.is_full() {
            self.prune_all();
        }
        Ok(())
    }

    /// The time at which the queue may be deleted, if it stays empty and unused.
    pub(crate) fn deletion_due(&self) -> Option<u64> {
        let after = self.settings.delete_empty_after?;
        let unused = self.items == 0 && self.opens.is_empty() && self.waiters.is_empty();
        let until_us = self.last_used_us.saturating_add(after.as_micros() as u64);
        // An id that is remembered is not forgotten with its queue.
        unused.then(|| until_us.max(self.ids.until_us(self.settings.dedupe)))
    }

    /// Whether older items are still to be removed for a new one.
    #[inline]
    pub(crate) fn is_discarding(&self) -> bool {
        self.is_discarding
    }

    /// Whether the last round has left work that can be done now.
    #[inline]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// The time of the next timed work, on the steady clock.
    #[inline]
    pub(crate) fn next_event(&self, now: Moment) -> Option<u64> {
        let expiry = self
            .ready
            .next_expiry()
            .map(|wall_ms| now.steady_at(wall_ms));
        let in_backlog = self.backlog.expiries.next_event(now);
        let due = self
            .delayed
            .first()
            .map(|(wall_ms, _)| now.steady_at(wall_ms));
        let open = self
            .open_deadlines
            .first()
            .map(|&(deadline_us, _)| deadline_us);
        let due_expiry = self.due.next_expiry();
        let due_expiry = due_expiry.map(|wall_ms| now.steady_at(wall_ms));
        let own = [self.sync_due(), self.deletion_due(), self.suspend_due()];
        [expiry, in_backlog, due, due_expiry, open]
            .into_iter()
            .chain(own)
            .flatten()
            .min()
    }

    fn append(&mut self, operation: &Operation<'_>) -> Result<u64, Cause> {
        self.record.clear();
        operation.encode(&mut self.record);
        self.log
            .append(&self.record)
            .inspect_err(|_| self.expedite_prune())
    }

    /// Appends a record that allows others to be pruned.
    fn append_reserved(&mut self, operation: &Operation<'_>) -> Result<u64, Cause> {
        self.record.clear();
        operation.encode(&mut self.record);
        self.log
            .append_reserved(&self.record)
            .inspect_err(|_| self.expedite_prune())
    }

    fn insert_open(&mut self, open: Open) {
        self.memory.add(bytes_in_memory(&open.item));
        self.opens.insert(open.item.id, open);
    }

    fn take_open(&mut self, id: u64) -> Option<Item> {
        let open = self.opens.remove(&id)?;
        self.memory.remove(bytes_in_memory(&open.item));
        if let Some(deadline_us) = open.deadline_us {
            self.open_deadlines.remove(&(deadline_us, id));
        }
        Some(open.item)
    }

    fn expire(&mut self, item: Item) {
        self.retire(item, self.settings.expire_to.clone(), Reason::Expired);
    }

    fn retire(&mut self, item: Item, to: Option<String>, reason: Reason) {
        match to {
            Some(to) => self.dead_letters.push(DeadLetter { item, to, reason }),
            None => self.record_retired(&item, reason, false),
        }
    }

    /// Records that an item has left, since it expired or failed; `is_moved`: it is in another queue.
    pub(crate) fn record_retired(&mut self, item: &Item, reason: Reason, is_moved: bool) {
        let counters = &mut self.counters;
        let (all, moved) = match reason {
            Reason::Expired => (&mut counters.expired_items, &mut counters.expired_moved),
            Reason::Failed => (&mut counters.failed_items, &mut counters.failed_moved),
        };
        *all += 1;
        *moved += u64::from(is_moved);
        self.record_removal(item.id, item.body.len());
    }

    fn fault(&self, cause: Cause) -> QueueError {
        QueueError::Storage {
            queue: self.name.to_string(),
            cause,
        }
    }
}

/// The change that adds an item.
#[inline]
fn addition<'a>(new: &NewItem<'a>, head: Head, due_ms: u64) -> Operation<'a> {
    match (new.from, new.history) {
        (None, None) => match new.once {
            None => Operation::Add {
                head,
                due_ms,
                body: new.body,
            },
            Some(key) => Operation::Once {
                head,
                due_ms,
                key,
                body: new.body,
            },
        },
        (None, Some(history)) => Operation::Moved {
            head,
            due_ms,
            history: history.borrowed(),
            body: new.body,
        },
        (Some((source, index)), _) => Operation::From {
            head,
            source,
            index,
            body: new.body,
        },
    }
}
