//! Taking items: get, open, peek, confirm, abort, and the connections that wait. Waiters of a queue are served in
//! FIFO order.

use tracing::warn;

use super::connection::{Connection, QueueId, Wait};
use super::{Broker, Status};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::storage::Storage;

/// The outcome of a `get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GetOutcome {
    /// An item.
    Item(Item),
    /// There is no item, or none was requested.
    Nothing,
    /// There is no item yet: [`Broker::take_woken`] will return the connection.
    Waiting,
    /// The connection has too many open items for this request, or the server is quiescent.
    Refused,
}

impl<S: Storage> Broker<S> {
    /// Does what `key` requests, for a connection that does not wait.
    ///
    /// # Errors
    /// The storage fails; no item was taken.
    #[inline]
    pub fn get(
        &mut self,
        connection: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        self.get_with(connection, key, None, now)
    }

    /// The next item for a `monitor`, which may have up to `opens_max` items open, or what is configured for the
    /// queue.
    ///
    /// # Errors
    /// The storage fails; no item was taken.
    pub fn monitor(
        &mut self,
        connection: ConnectionId,
        key: &GetKey<'_>,
        opens_max: usize,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        self.get_with(connection, key, Some(opens_max), now)
    }

    #[inline]
    fn get_with(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        opens_max: Option<usize>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        if key.peek {
            self.counters.cmd_peek += 1;
        } else {
            self.counters.cmd_get += 1;
        }
        if self.status == Status::Quiescent {
            return Ok(self.end_quiescent(by, key, now));
        }
        let known = self.names.get(key.name).copied();
        // A fan-out queue is created with its first mention; any other with its first item, or its first waiter.
        let begins =
            (key.wait_ms > 0 || crate::name::parent(key.name).is_some()) && !key.only_ends();
        let id = match known {
            Some(id) => id,
            None if (begins && self.config.alias(key.name).is_none())
                || self.closed.may_reopen(key.name, now) =>
            {
                self.warn_of_group(key.name);
                self.create(key.name, now)?
            }
            None => {
                self.check_not_closed(key.name)?;
                self.warn_of_group(key.name);
                return Ok(self.miss());
            }
        };
        if key.close {
            self.close_oldest(by, id);
        }
        if key.abort {
            self.abort_oldest(by, id, now);
        }
        if key.only_ends() {
            return Ok(GetOutcome::Nothing);
        }
        if !key.peek && !self.can_take(by, id, key.open, opens_max) {
            return Ok(GetOutcome::Refused);
        }
        let got = self.take(by, id, key, now)?;
        self.after_take(id, now);
        match got {
            Some(item) => {
                self.counters.get_hits += u64::from(!key.peek);
                Ok(GetOutcome::Item(item))
            }
            None if key.wait_ms > 0 => {
                self.add_waiter(
                    by,
                    id,
                    now.steady_us
                        .saturating_add(key.wait_ms.saturating_mul(1_000)),
                );
                Ok(GetOutcome::Waiting)
            }
            None => Ok(self.miss()),
        }
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
        if let Some(&id) = self.names.get(key.name) {
            if key.close {
                self.close_oldest(by, id);
            }
            if key.abort {
                self.abort_oldest(by, id, now);
            }
        }
        if key.only_ends() {
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
            Wait::None | Wait::Waiting { .. } => Ok(None),
            Wait::Ended => {
                connection.wait = Wait::None;
                Ok(Some(self.miss()))
            }
            Wait::Granted {
                queue: id,
                id: item,
            } => {
                connection.wait = Wait::None;
                let Some(queue) = self.queue_mut(id) else {
                    return Ok(Some(self.miss()));
                };
                let item = match queue.opened(item, by) {
                    // The open timeout is over: the item belongs to another connection.
                    None => return Ok(Some(self.miss())),
                    Some(item) => item.clone(),
                };
                if key.peek {
                    queue.undo_open(item.id);
                    self.dispatch(id, now);
                } else if key.open {
                    if let Some(connection) = self.connection(by) {
                        connection.opens.push_back((id, item.id));
                    }
                } else {
                    queue.close(item.id);
                    queue.counters.transactions -= 1;
                    self.after_take(id, now);
                }
                self.counters.get_hits += u64::from(!key.peek);
                Ok(Some(GetOutcome::Item(item)))
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

    /// Confirms the `count` oldest items of this queue that the connection has open; none if it has fewer.
    pub fn confirm(&mut self, by: ConnectionId, name: &str, count: u64) -> bool {
        let open = |broker: &mut Self, id| {
            broker
                .connection(by)
                .map_or(0, |connection| connection.opens_of(id)) as u64
        };
        let Some(id) = self
            .names
            .get(name)
            .copied()
            .filter(|&id| open(self, id) >= count)
        else {
            return count == 0;
        };
        (0..count).for_each(|_| self.close_oldest(by, id));
        true
    }

    #[inline]
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.index())?.as_mut()
    }

    /// Ends a wait: the connection will be woken.
    pub(super) fn end_wait(&mut self, id: ConnectionId, end: Wait) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if let Wait::Waiting { until_us, .. } = std::mem::replace(&mut connection.wait, end) {
            self.waits.remove(&(until_us, id));
        }
        self.woken.push(id);
    }

    /// Removes a connection from the waiters of its queue.
    pub(super) fn remove_waiter(&mut self, id: ConnectionId, wait: Wait) {
        if let Wait::Waiting { queue, until_us } = wait {
            self.waits.remove(&(until_us, id));
            if let Some(queue) = self.queue_mut(queue)
                && let Some(at) = queue.waiters.iter().position(|waiter| *waiter == id)
            {
                queue.waiters.remove(at);
            }
        }
    }

    fn add_waiter(&mut self, by: ConnectionId, queue: QueueId, until_us: u64) {
        if let Some(connection) = self.connection(by) {
            connection.wait = Wait::Waiting { queue, until_us };
            self.waits.insert((until_us, by));
        }
        if let Some(queue) = self.queue_mut(queue) {
            queue.waiters.push_back(by);
        }
    }

    #[inline]
    fn take(
        &mut self,
        by: ConnectionId,
        id: QueueId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<Option<Item>, QueueError> {
        let Some(queue) = self.queue_mut(id) else {
            return Ok(None);
        };
        if key.peek {
            return queue.peek(now);
        }
        let Some(item) = queue.take_next(now)? else {
            return Ok(None);
        };
        if key.open {
            queue.open(item.clone(), by, now);
            if let Some(connection) = self.connection(by) {
                connection.opens.push_back((id, item.id));
            }
        } else {
            queue.record_removal(item.id, item.body.len());
        }
        Ok(Some(item))
    }

    /// Taking an item serves no waiter, but may leave expired items to move.
    #[inline]
    fn after_take(&mut self, id: QueueId, now: Moment) {
        if self.queue(id).is_some_and(|queue| queue.has_dead_letters()) {
            self.dispatch(id, now);
        } else {
            self.set_timer(id.slot, now);
        }
    }

    #[inline]
    fn can_take(
        &mut self,
        by: ConnectionId,
        id: QueueId,
        open: bool,
        opens_max: Option<usize>,
    ) -> bool {
        let configured = self.settings(id).and_then(|settings| settings.max_opens);
        let limit = configured.or(opens_max).unwrap_or(1);
        let in_all = self.limits.opens_per_connection;
        let has_room = !open || !self.memory.is_over(0);
        let Some(connection) = self.connection(by) else {
            return false;
        };
        match connection.opens_of(id) {
            0 if !open => true,
            opens => {
                open && opens < limit
                    && connection.opens.len() < in_all
                    && (has_room || connection.opens.is_empty())
            }
        }
    }

    fn close_oldest(&mut self, by: ConnectionId, id: QueueId) {
        if let Some(item) = self
            .connection(by)
            .and_then(|connection| connection.oldest_of(id))
            && let Some(queue) = self.queue_mut(id)
        {
            queue.close(item);
        }
    }

    fn abort_oldest(&mut self, by: ConnectionId, id: QueueId, now: Moment) {
        if let Some(item) = self
            .connection(by)
            .and_then(|connection| connection.oldest_of(id))
            && let Some(queue) = self.queue_mut(id)
        {
            queue.requeue(item, now);
            self.dispatch(id, now);
        }
    }

    #[inline]
    fn miss(&mut self) -> GetOutcome {
        self.counters.get_misses += 1;
        GetOutcome::Nothing
    }
}
