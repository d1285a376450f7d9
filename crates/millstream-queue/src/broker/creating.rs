//! Queues that are created beside the thread of the broker, where the storage can: a set that needs one waits for it,
//! and holds up no other request.

use super::Broker;
use super::connection::{QueueId, Wait};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::queue::Queue;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// Begins to create the logs of these queues that do not exist.
    ///
    /// # Errors
    /// [`QueueError::BeingCreated`]: one of them is not there yet.
    #[cold]
    pub(super) fn create_logs(&mut self, targets: &[QueueId]) -> Result<(), QueueError> {
        let mut waits_for = None;
        for &id in targets {
            let Some(queue) = self.queue_mut(id).filter(|queue| !queue.exists()) else {
                continue;
            };
            if queue.begin_create() {
                waits_for = Some(queue.name.to_string());
                if !self.creating.contains(&id) {
                    self.creating.push(id);
                }
            }
        }
        match waits_for {
            Some(queue) => Err(QueueError::BeingCreated { queue }),
            None => Ok(()),
        }
    }

    /// The connection waits for a queue that is being created: [`take_woken`](Self::take_woken) returns it when its
    /// request can be done again.
    pub(crate) fn await_creation(&mut self, by: ConnectionId) {
        if let Some(connection) = self.connection(by) {
            connection.wait = Wait::Creating;
            self.creators.push(by);
        }
    }

    /// Creates the fan-out queues that a `get` mentions for the first time. Returns true if it must wait for one:
    /// [`take_woken`](Self::take_woken) will return the connection, and [`resume`](Self::resume) does the request.
    ///
    /// # Errors
    /// The storage refuses: the queue gets no copies.
    pub(super) fn create_mentioned(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<bool, QueueError> {
        for name in key
            .names()
            .filter(|name| crate::name::parent(name).is_some())
        {
            let one = GetKey { name, ..*key };
            let Some(id) = self.queue_for(&one, now)? else {
                continue;
            };
            match self.create_logs(&[id]) {
                Ok(()) => {}
                Err(QueueError::BeingCreated { .. }) => {
                    if let Some(connection) = self.connection(by) {
                        connection.wait = Wait::Subscribing;
                        self.creators.push(by);
                    }
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
            if let Some(queue) = self.queue_mut(id).filter(|queue| !queue.exists()) {
                queue.create()?;
            }
        }
        Ok(false)
    }

    /// Takes the queues that the storage has created since the last call, and wakes the connections that wait for any.
    pub fn created(&mut self, now: Moment) {
        for id in std::mem::take(&mut self.creating) {
            match self.queue_mut(id).map(Queue::begin_create) {
                Some(true) => self.creating.push(id),
                // Its log is open.
                Some(false) => self.set_timer(id.slot, now),
                None => {}
            }
        }
        for by in std::mem::take(&mut self.creators) {
            let connection = self.connection(by);
            let Some(connection) = connection else {
                continue;
            };
            connection.wait = match connection.wait {
                Wait::Creating => Wait::None,
                Wait::Subscribing => Wait::Subscribed,
                _ => continue,
            };
            self.woken.push(by);
        }
    }
}
