//! `get a,b,c`: the first of several queues that has an item.
//!
//! A connection that waits is in the list of waiters of each queue, and leaves all of them when one serves it. The idea
//! is that of `BLPOP` in Redis, and of `watch` in beanstalkd.

use super::connection::{QueueId, Wait};
use super::waits::wait_until;
use super::{Broker, GetOutcome};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::queue::Next;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// The first of several queues that has an item; or a wait for any of them.
    #[cold]
    pub(super) fn get_of_several(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        if !self.end_open(by, None, key, now) {
            return Ok(GetOutcome::NotOpen);
        }
        if key.only_ends() {
            Ok(GetOutcome::Nothing)
        } else {
            self.take_first(by, key, now)
        }
    }

    /// The first item of several queues; or a wait for any of them.
    pub(super) fn take_first(
        &mut self,
        by: ConnectionId,
        key: &GetKey<'_>,
        now: Moment,
    ) -> Result<GetOutcome, QueueError> {
        let mut queues: Vec<(QueueId, GetKey<'_>)> = Vec::new();
        for name in key.names() {
            let one = GetKey {
                name,
                others: "",
                ..*key
            };
            let id = self.queue_for(&one, now)?;
            let is_new = |id: &QueueId| queues.iter().all(|(known, _)| known != id);
            if let Some(id) = id.filter(is_new) {
                queues.push((id, one));
            }
        }
        if !key.peek {
            for (id, one) in &queues {
                if !self.can_take(by, *id, one) {
                    return Ok(GetOutcome::Refused);
                }
            }
        }
        for (id, one) in &queues {
            let got = self.take(by, *id, one, now)?;
            self.after_take(*id, now);
            match got {
                Next::Nothing => {}
                Next::Item(item) => {
                    self.counters.get_hits += u64::from(!key.peek);
                    return Ok(GetOutcome::ItemOf(item, one.name.into()));
                }
                Next::Unfinished => {
                    if let Some(connection) = self.connection(by) {
                        connection.wait = Wait::Searching { queue: *id };
                    }
                    return Ok(GetOutcome::Searching);
                }
            }
        }
        let ids: Vec<QueueId> = queues.iter().map(|(id, _)| *id).collect();
        match ids.split_first() {
            Some((&first, also)) if key.wait_ms > 0 => {
                self.add_waiter(by, first, also, wait_until(key, now));
                Ok(GetOutcome::Waiting)
            }
            _ => Ok(self.miss()),
        }
    }
}
