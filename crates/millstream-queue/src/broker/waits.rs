//! The connections that wait for an item. Each is in the list of waiters of its queues, and among the ends of all
//! waits.

use super::Broker;
use super::connection::{QueueId, Wait};
use crate::connection::ConnectionId;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// Ends a wait: the connection will be woken.
    pub(super) fn end_wait(&mut self, id: ConnectionId, end: Wait) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let wait = std::mem::replace(&mut connection.wait, end);
        if let Wait::Waiting { until_us, .. } = wait {
            let also = std::mem::take(&mut connection.also);
            self.waits.remove(&(until_us, id));
            // A connection that waits for one queue has left it already.
            if !also.is_empty() {
                self.leave(id, wait, &also);
            }
        }
        self.woken.push(id);
    }

    /// Removes a connection from the waiters of its queues.
    pub(super) fn remove_waiter(&mut self, id: ConnectionId, wait: Wait) {
        let connection = self.connection(id);
        let also = connection.map(|connection| std::mem::take(&mut connection.also));
        self.leave(id, wait, &also.unwrap_or_default());
    }

    /// Removes a connection, which waited for these queues, from their waiters.
    pub(super) fn leave(&mut self, id: ConnectionId, wait: Wait, also: &[QueueId]) {
        let Wait::Waiting { queue, until_us } = wait else {
            return;
        };
        self.waits.remove(&(until_us, id));
        for &queue in [queue].iter().chain(also) {
            if let Some(queue) = self.queue_mut(queue)
                && let Some(at) = queue.waiters.iter().position(|waiter| *waiter == id)
            {
                queue.waiters.remove(at);
            }
        }
    }

    /// The connection waits for a queue and others.
    pub(super) fn add_waiter(
        &mut self,
        by: ConnectionId,
        queue: QueueId,
        also: &[QueueId],
        until_us: u64,
    ) {
        if let Some(connection) = self.connection(by) {
            connection.wait = Wait::Waiting { queue, until_us };
            connection.also.extend_from_slice(also);
            self.waits.insert((until_us, by));
        }
        for &queue in [queue].iter().chain(also) {
            if let Some(queue) = self.queue_mut(queue) {
                queue.waiters.push_back(by);
            }
        }
    }
}

/// The end of the wait of a `get`, on the steady clock.
pub(super) fn wait_until(key: &GetKey<'_>, now: Moment) -> u64 {
    let wait_us = key.wait_ms.saturating_mul(1_000);
    now.steady_us.saturating_add(wait_us)
}
