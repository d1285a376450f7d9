//! Taking items: get, open, peek, confirm, abort, and the connections that wait. Waiters of a queue are served in
//! FIFO order.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::connection::{Connection, Place, QueueId, Wait};
use super::waits::wait_until;
use super::{Broker, Status};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::queue::Next;
use crate::storage::Storage;

/// The outcome of a `get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// An item.
    Item(Item),
    /// An item of this queue, one of several.
    ItemOf(Item, Arc<str>),
    /// There is no item, or none was requested.
    Nothing,
    /// There is no item yet: [`Broker::take_woken`] will return the connection.
    Waiting,
    /// A fan-out queue is being created: [`Broker::take_woken`] will return the connection, and [`Broker::resume`] does
    /// what was requested.
    Creating,
    /// There are many items that have expired, and the search for another one is not over: [`Broker::resume`] resumes
    /// it.
    Searching,
    /// The connection has too many open items for this request, or the server is quiescent.
    Refused,
    /// The item to confirm or to requeue is not open, or no longer: its time was over. Nothing else was done.
    NotOpen,
}

/// The outcome of a `confirm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// All items have left the queue.
    Confirmed,
    /// Some were not open, or no longer; the others have left the queue.
    NotOpen,
    /// The connection has opened fewer items: none was confirmed.
    Fewer,
}

/// What a client says of an open item.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Close,
    /// The item is served again after this time; without it the queue's retries say when.
    Abort(Option<Duration>),
}

impl<S: Storage> Broker<S> {
    /// Does what `key` requests, for a connection that does not wait.
    ///
    /// # Errors
    /// The storage fails; no item was taken.
    #[inline]
    pub fn get(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        let may_mention = !key.others.is_empty() || crate::name::parent(key.name).is_some();
        if may_mention
            && !key.only_ends()
            && self.status != Status::Quiescent
            && self.create_mentioned(by, key, now)?
        {
            return Ok(GetOutcome::Creating);
        }
        if key.peek {
            self.counters.cmd_peek += 1;
        } else {
            self.counters.cmd_get += 1;
        }
        if self.status == Status::Quiescent {
            return Ok(self.end_quiescent(by, key, now));
        }
        if !key.others.is_empty() {
            return self.get_of_several(by, key, now);
        }
        let Some(id) = self.queue_for(key, now)? else {
            return Ok(if self.end_open(by, None, key, now) {
                self.miss()
            } else {
                GetOutcome::NotOpen
            });
        };
        if !self.end_open(by, Some(id), key, now) {
            return Ok(GetOutcome::NotOpen);
        }
        if key.only_ends() {
            return Ok(GetOutcome::Nothing);
        }
        if !key.peek && !self.can_take(by, id, key) {
            return Ok(GetOutcome::Refused);
        }
        self.take_or_wait(by, id, key, now)
    }

    #[inline]
    fn take_or_wait(
        &mut self,
        by: ConnectionId,
        id: QueueId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        let got = self.take(by, id, key, now)?;
        self.after_take(id, now);
        match got {
            Next::Item(item) => {
                self.counters.get_hits += u64::from(!key.peek);
                Ok(GetOutcome::Item(item))
            }
            Next::Unfinished => {
                if let Some(connection) = self.connection(by) {
                    connection.wait = Wait::Searching { queue: id };
                }
                Ok(GetOutcome::Searching)
            }
            Next::Nothing if key.wait_ms > 0 => {
                self.add_waiter(by, id, &[], wait_until(key, now));
                Ok(GetOutcome::Waiting)
            }
            Next::Nothing => Ok(self.miss()),
        }
    }

    /// The queue of a `get`, which begins if necessary; `None` if there is none. A fan-out queue is created with its
    /// first mention; any other with its first item, or its first waiter.
    #[inline]
    pub(super) fn queue_for(
        &mut self,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<Option<QueueId>, QueueError> {
        if let Some(&id) = self.names.get(key.name) {
            return Ok(Some(id));
        }
        let begins =
            (key.wait_ms > 0 || crate::name::parent(key.name).is_some()) && !key.only_ends();
        if (begins && self.config.alias(key.name).is_none())
            || self.closed.may_reopen(key.name, now)
        {
            self.warn_of_group(key.name);
            return self.create_for(key.name, now).map(Some);
        }
        self.check_not_closed(key.name)?;
        self.warn_of_group(key.name);
        Ok(None)
    }

    /// The queue that a client reads for the first time.
    #[cold]
    fn create_for(&mut self, name: &str, now: Moment) -> Result<QueueId, QueueError> {
        let is_new = self.check_not_closed(name).is_ok();
        let id = self.create(name, now)?;
        if let Some(parent) = crate::name::parent(name).filter(|_| is_new) {
            info!(
                "queue \"{name}\" gets a copy of each item of \"{parent}\" from now on: a client reads it for the first time"
            );
        }
        Ok(id)
    }

    /// In Siberite `work.group` (in its first versions `work:group`) is a consumer group of the queue `work`. Here it
    /// is an empty queue.
    #[cold]
    fn warn_of_group(&mut self, name: &str) {
        if let Some((queue, _)) = name.split_once(['.', ':'])
            && !self.has_warned
            && crate::name::parent(name).is_none()
            && self.names.contains_key(queue)
        {
            self.has_warned = true;
            warn!(
                "a client reads \"{name}\", which does not exist. It is no consumer group of \"{queue}\" as in Siberite: read \"{queue}+{}\" for copies of its items",
                &name[queue.len() + 1..]
            );
        }
    }

    /// A quiescent server confirms and aborts open items, and delivers none.
    #[cold]
    fn end_quiescent(&mut self, by: ConnectionId, key: &GetKey<'_>, now: Moment) -> GetOutcome {
        let known = self.names.get(key.name).copied();
        if !self.end_open(by, known, key, now) {
            GetOutcome::NotOpen
        } else if key.only_ends() {
            GetOutcome::Nothing
        } else {
            GetOutcome::Refused
        }
    }

    /// The result of a wait; `None` while it lasts. `key` is that of the `get` that waited.
    ///
    /// # Errors
    /// The storage fails.
    pub fn resume(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<Option<GetOutcome>, QueueError> {
        let Some(connection) = self.connection(by) else {
            return Ok(None);
        };
        match connection.wait {
            Wait::None | Wait::Waiting { .. } | Wait::Creating | Wait::Subscribing => Ok(None),
            Wait::Subscribed => {
                connection.wait = Wait::None;
                self.get(by, key, now).map(Some)
            }
            Wait::Ended => {
                connection.wait = Wait::None;
                Ok(Some(self.miss()))
            }
            Wait::Searching { queue } => {
                connection.wait = Wait::None;
                if self.status == Status::Quiescent {
                    return Ok(Some(self.miss()));
                }
                match key.others {
                    "" => self.take_or_wait(by, queue, key, now).map(Some),
                    _ => self.take_first(by, key, now).map(Some),
                }
            }
            Wait::Granted {
                queue: id,
                id: item,
            } => {
                connection.wait = Wait::None;
                let Some(queue) = self.queue_mut(id) else {
                    return Ok(Some(self.miss()));
                };
                let name = (!key.others.is_empty()).then(|| Arc::clone(&queue.name));
                let item = match queue.opened(item, by) {
                    // The open timeout is over: the item belongs to another connection.
                    None => return Ok(Some(self.miss())),
                    Some(item) => item.clone(),
                };
                if key.peek {
                    queue.undo_open(item.id);
                    self.dispatch(id, now);
                } else if key.open {
                    self.note_open(by, id, item.id);
                } else {
                    queue.close(item.id);
                    queue.counters.transactions -= 1;
                    self.after_take(id, now);
                }
                self.counters.get_hits += u64::from(!key.peek);
                Ok(Some(match name {
                    None => GetOutcome::Item(item),
                    Some(name) => GetOutcome::ItemOf(item, name),
                }))
            }
        }
    }

    /// Whether the connection is waiting.
    pub fn is_waiting(&mut self, by: ConnectionId) -> bool {
        self.connection(by)
            .is_some_and(|connection| matches!(connection.wait, Wait::Waiting { .. }))
    }

    /// Ends the wait of a connection: an item that is held for it is requeued.
    pub fn cancel_wait(&mut self, by: ConnectionId, now: Moment) {
        let Some(connection) = self.connection(by) else {
            return;
        };
        let wait = std::mem::take(&mut connection.wait);
        self.remove_waiter(by, wait);
        if let Wait::Granted {
            queue: id,
            id: item,
        } = wait
        {
            if let Some(queue) = self.queue_mut(id) {
                queue.undo_open(item);
            }
            self.dispatch(id, now);
        }
    }

    /// Confirms the `count` items of this queue that the connection opened first; none if it opened fewer.
    pub fn confirm(
        &mut self,
        by: ConnectionId,
        name: &str,
        count: u64,
        now: Moment,
    ) -> Confirmation {
        let connection = self.connection(by);
        let places = connection.map_or(0, |connection| connection.opens_of(name));
        if (places as u64) < count {
            return Confirmation::Fewer;
        }
        let mut outcome = Confirmation::Confirmed;
        for _ in 0..count {
            if !self.end_oldest(by, std::iter::once(name), Verdict::Close, now) {
                outcome = Confirmation::NotOpen;
            }
        }
        outcome
    }

    /// Confirms the items of this queue with these ids, whichever connections have opened them.
    pub fn confirm_ids(
        &mut self,
        by: ConnectionId,
        name: &str,
        ids: impl IntoIterator<Item = u64>,
        now: Moment,
    ) -> Confirmation {
        let known = self.names.get(name).copied();
        let mut outcome = Confirmation::Confirmed;
        for item in ids {
            if !known.is_some_and(|id| self.end_id(by, id, item, Verdict::Close, now)) {
                outcome = Confirmation::NotOpen;
            }
        }
        outcome
    }

    /// Begins the time of open items anew: they are returned when `limit` is over, without it when the queue's
    /// `open_timeout` is. `item` is one that any connection has open; without it all of this queue are meant that the
    /// connection itself has open. Returns whether there was one.
    ///
    /// The idea of a lease that its holder renews is that of `touch` in beanstalkd, and of the visibility timeout in
    /// SQS.
    pub fn touch(
        &mut self,
        by: ConnectionId,
        name: &str,
        item: Option<u64>,
        limit: Option<Duration>,
        now: Moment,
    ) -> bool {
        let Some(&id) = self.names.get(name) else {
            return false;
        };
        let items: Vec<u64> = match item {
            Some(item) => vec![item],
            None => {
                let own = self.places_of(by).filter(|place| place.queue == id);
                own.filter_map(|place| place.item).collect()
            }
        };
        let Some(queue) = self.queue_mut(id) else {
            return false;
        };
        let mut touched = false;
        for one in items {
            let owner = queue.owner(one);
            if owner.is_some_and(|owner| item.is_some() || owner == by) {
                queue.renew_open(one, limit, now);
                touched = true;
            }
        }
        self.set_timer(id.slot, now);
        touched
    }

    #[inline]
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index())?.as_mut()
    }

    #[inline]
    pub(super) fn take(
        &mut self,
        by: ConnectionId,
        id: QueueId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<Next, QueueError> {
        let mut round = self.round();
        let Some(queue) = self.queue_mut(id) else {
            return Ok(Next::Nothing);
        };
        if key.peek {
            return queue.peek(now, &mut round);
        }
        let item = match queue.take_next(now, &mut round)? {
            Next::Item(item) => item,
            none => return Ok(none),
        };
        queue.deliver(&item, key.open.then_some(by), now);
        if key.open {
            self.note_open(by, id, item.id);
        }
        Ok(Next::Item(item))
    }

    /// Taking an item serves no waiter, but may leave expired items to move.
    #[inline]
    pub(super) fn after_take(&mut self, id: QueueId, now: Moment) {
        if self.queue(id).is_some_and(|queue| queue.has_dead_letters()) {
            self.dispatch(id, now);
        } else {
            self.set_timer(id.slot, now);
        }
    }

    #[inline]
    pub(super) fn can_take(&mut self, by: ConnectionId, id: QueueId, key: &GetKey<'_>) -> bool {
        let open = key.open;
        let configured = self.settings(id).and_then(|settings| settings.max_opens);
        let limit = configured.unwrap_or(match key.items_max {
            None => 1,
            Some(_) => usize::MAX,
        });
        let in_all = self.limits.opens_per_connection;
        let has_room = !open || !self.memory.is_over(0);
        let Some(connection) = self.connection(by) else {
            return false;
        };
        connection.gives_up.retain(|queue| *queue != id);
        let opens = connection.opens_of(key.name);
        let of_all = connection.opens.len();
        if of_all == 0 {
            return !open || limit > 0;
        }
        if open {
            let may_open = opens < limit && of_all < in_all;
            has_room && (may_open || self.may_give_up(by, id, key.name))
        } else {
            opens == 0 || !self.has_open(by, Some(id))
        }
    }

    /// Whether the connection has an item open, of this queue or of any.
    pub(crate) fn has_open(&self, by: ConnectionId, queue: Option<QueueId>) -> bool {
        let mut places = self.places_of(by);
        places
            .any(|place| queue.is_none_or(|queue| queue == place.queue) && self.is_open(by, place))
    }

    /// A client that opens an item beyond what it may have open has given up one whose time was over: the place of the
    /// oldest such item becomes free with the next open. Returns false if there is none.
    #[cold]
    fn may_give_up(&mut self, by: ConnectionId, queue: QueueId, name: &str) -> bool {
        let is_stale = self.stale_place(by, name, None).is_some();
        if let Some(connection) = self.connection(by).filter(|_| is_stale) {
            connection.gives_up.push(queue);
        }
        is_stale
    }

    /// The place of the oldest item of a queue that is open no longer, or only since the connection has just opened it
    /// again.
    fn stale_place(&self, by: ConnectionId, name: &str, again: Option<u64>) -> Option<usize> {
        let mut places = self.places_of(by);
        places.position(|place| {
            let is_past = (again.is_some() && place.item == again) || !self.is_open(by, place);
            place.is_of(name) && is_past
        })
    }

    /// What a connection has opened, in its order.
    fn places_of(&self, by: ConnectionId) -> impl Iterator<Item = &Place> {
        let connection = self.connections.get(by.index()).and_then(Option::as_ref);
        connection
            .into_iter()
            .flat_map(|connection| &connection.opens)
    }

    /// Whether the connection still has an item open that it has opened.
    pub(super) fn is_open(&self, by: ConnectionId, place: &Place) -> bool {
        let queue = self.queue(place.queue);
        place
            .item
            .is_some_and(|item| queue.is_some_and(|queue| queue.opened(item, by).is_some()))
    }

    /// The connection has opened an item.
    #[inline]
    pub(super) fn note_open(&mut self, by: ConnectionId, id: QueueId, item: u64) {
        let Some(name) = self.queue(id).map(|queue| Arc::clone(&queue.name)) else {
            return;
        };
        let Some(connection) = self.connection(by) else {
            return;
        };
        if !std::mem::take(&mut connection.gives_up).contains(&id) {
            return connection.opened(id, name, item);
        }
        let given_up = self.stale_place(by, &name, Some(item));
        if let Some(connection) = self.connection(by) {
            given_up.inspect(|&at| {
                connection.opens.remove(at);
            });
            connection.opened(id, name, item);
        }
    }

    /// Confirms or requeues what the key says; `id` is its queue if it has one. Returns false if that is not open, or
    /// no longer.
    pub(super) fn end_open(
        &mut self,
        by: ConnectionId,
        id: Option<QueueId>,
        key: &GetKey<'_>,
        now: Moment,
    ) -> bool {
        let verdict = match (key.close, key.abort) {
            (true, _) => Verdict::Close,
            (_, true) => Verdict::Abort(key.delay_ms.map(Duration::from_millis)),
            _ => return true,
        };
        match (key.id, id) {
            (Some(item), Some(id)) => self.end_id(by, id, item, verdict, now),
            (Some(_), None) => false,
            (None, _) if key.items_max.is_some() => self.close_all(by, key, now),
            (None, _) => self.end_oldest(by, key.names(), verdict, now),
        }
    }

    /// Whether the connection has a place of one of these queues.
    pub(super) fn has_opened<'a>(
        &self,
        by: ConnectionId,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> bool {
        let mut places = self.places_of(by);
        places.any(|place| names.clone().any(|name| place.is_of(name)))
    }

    /// Ends the open read of these queues that the connection began first. Returns false if its time was over, or its
    /// queue was deleted since. A connection that has none need not ask.
    pub(super) fn end_oldest<'a>(
        &mut self,
        by: ConnectionId,
        names: impl Iterator<Item = &'a str> + Clone,
        verdict: Verdict,
        now: Moment,
    ) -> bool {
        let connection = self.connection(by);
        let Some(place) = connection.and_then(|connection| connection.oldest_of(names)) else {
            return true;
        };
        let item = place.item.filter(|_| self.is_open(by, &place));
        item.is_some_and(|item| self.end(place.queue, item, verdict, now))
    }

    /// Ends the open read of an item, whichever connection began it. Returns false if the item is not open.
    fn end_id(
        &mut self,
        by: ConnectionId,
        id: QueueId,
        item: u64,
        verdict: Verdict,
        now: Moment,
    ) -> bool {
        let Some(owner) = self.queue(id).and_then(|queue| queue.owner(item)) else {
            return false;
        };
        if let Some(connection) = self.connection(owner) {
            if owner == by {
                connection.forget(id, item)
            } else {
                connection.lose(id, item)
            }
        }
        self.end(id, item, verdict, now)
    }

    fn end(&mut self, id: QueueId, item: u64, verdict: Verdict, now: Moment) -> bool {
        let Some(queue) = self.queue_mut(id) else {
            return false;
        };
        match verdict {
            Verdict::Close => queue.close(item).is_some(),
            Verdict::Abort(delay) => {
                queue.requeue(item, delay, now);
                self.dispatch(id, now);
                true
            }
        }
    }

    #[inline]
    pub(super) fn miss(&mut self) -> GetOutcome {
        self.counters.get_misses += 1;
        GetOutcome::Nothing
    }
}
