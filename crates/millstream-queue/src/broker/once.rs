//! `set QUEUE/id=ID`: each queue takes an id once within its `dedupe`.
//!
//! Each of the queues that get an item, which are the named one and its fan-out queues, or those of an alias, remembers
//! the id by itself. So a set that some of them have, since a crash came between, is completed when it is repeated.

use super::Broker;
use super::connection::QueueId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::protocol::SetKey;
use crate::queue::ids;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// Removes from the targets the queues that have the item already: they need only be as durable as an answer
    /// promises. Returns whether that are all.
    ///
    /// # Errors
    /// One of the queues, or the one that is named, remembers no ids; or one of them can remember no more.
    #[cold]
    pub(super) fn skip_known(
        &mut self,
        key: &SetKey<'_>,
        targets: &mut Vec<QueueId>,
        now: Moment,
    ) -> Result<bool, QueueError> {
        let id = ids::key_of(key.id.unwrap_or_default());
        let named = self.names.get(key.name).and_then(|id| self.settings(*id));
        if named.is_some_and(|named| named.dedupe.is_none()) {
            return Err(QueueError::NoDedupe {
                queue: key.name.to_owned(),
            });
        }
        let mut known = Vec::new();
        for &target in &*targets {
            if let Some(queue) = self.queue_mut(target)
                && queue.knows(id, now)?
            {
                known.push(target);
            }
        }
        targets.retain(|target| !known.contains(target));
        for &target in &known {
            self.schedule_sync(target, key.sync, now);
            let is_wanted = self.slots[target.slot as usize].dirty;
            if let Some(queue) = self.queue_mut(target).filter(|_| is_wanted) {
                queue.sync_closed()?;
            }
        }
        Ok(targets.is_empty() && !known.is_empty())
    }
}
