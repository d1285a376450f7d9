//! Lent items: they are confirmed later by their ids, after a restart too.
//!
//! A lent item is open, and belongs to no connection. The log does not record this: after a restart the item is in
//! the queue again, and a late confirmation removes it from there.

use super::{Open, Queue};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::storage::Log;
use crate::storage::operation::Operation;

impl<L: Log> Queue<L> {
    /// Lends an item that [`take_next`](Self::take_next) took. It has no open timeout.
    pub(crate) fn lend(&mut self, item: Item) {
        self.counters.transactions += 1;
        let open = Open {
            item,
            connection: ConnectionId::LENT,
            deadline_us: None,
        };
        self.insert_open(open);
    }

    /// Removes an item that was added by `added_by_ms`, wherever it is. Returns false if it has left before. A later
    /// item with this id belongs to a new queue of the same name.
    ///
    /// # Errors
    /// The item is in the log only and cannot be read, or its removal cannot be recorded.
    pub(crate) fn remove(&mut self, id: u64, added_by_ms: u64) -> Result<bool, QueueError> {
        let later = |item: &Item| item.added_ms > added_by_ms;
        if let Some(open) = self.opens.get(&id) {
            return Ok(!later(&open.item) && self.close(id).is_some());
        }
        let length = match self.ready.remove(id) {
            Some(item) if later(&item) => {
                self.ready.insert(item);
                return Ok(false);
            }
            Some(item) => item.body.len(),
            None => match self.remove_from_log(id, added_by_ms)? {
                Some(length) => {
                    self.backlog.deliveries.remove(&id);
                    length
                }
                None => return Ok(false),
            },
        };
        self.items -= 1;
        self.bytes -= length as u64;
        self.record_removal(id, length);
        Ok(true)
    }

    /// Removes an item that is in the log only, if it is still in the queue. Returns its length.
    fn remove_from_log(&mut self, id: u64, added_by_ms: u64) -> Result<Option<usize>, QueueError> {
        let delayed = self.delayed.due_ms(id).is_some() || self.due.contains(id);
        let backlog = self.backlog.items > 0
            && id >= self.backlog.position
            && !self.backlog.removed.contains(id);
        let position = self.relocations.position(id);
        let known = self.log.first()..self.log.next();
        if !(delayed || backlog) || !known.contains(&position) {
            return Ok(None);
        }
        let Some((item, due_ms)) = self.read_item(position)? else {
            return Ok(None);
        };
        if item.id != id || item.added_ms > added_by_ms || (due_ms != 0 && !delayed) {
            return Ok(None);
        }
        if !self.delayed.remove(id) && !self.due.remove(id) {
            self.backlog.items -= 1;
            self.backlog.removed.insert(id);
        }
        Ok(Some(item.body.len()))
    }

    /// The number of the next item of `source`: all before it are in the queue.
    pub(crate) fn next_index(&self, source: u64) -> u64 {
        self.source_positions.next(source)
    }

    /// Each source with the number of its next item.
    pub(crate) fn sources(&self) -> Vec<(u64, u64)> {
        self.source_positions.all().collect()
    }

    /// Records the next number of `source` in a queue that keeps none of its items.
    pub(crate) fn set_next_index(&mut self, source: u64, next: u64) -> Result<(), QueueError> {
        let operation = Operation::Mark {
            source,
            index: next,
        };
        let position = self.append(&operation).map_err(|cause| self.fault(cause))?;
        self.source_positions.set(source, next, position);
        Ok(())
    }
}
