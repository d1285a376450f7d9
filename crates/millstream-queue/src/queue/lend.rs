//! Items that are lent: taken by somebody who confirms them later by their ids, after a restart too.
//!
//! An item that is lent is open, and belongs to no connection. Nothing in the log says so: after a restart it is back in its
//! place, and is removed from there if it is confirmed then.

use super::{Open, Queue};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::storage::Log;
use crate::storage::operation::Operation;

impl<L: Log> Queue<L> {
    /// An item that [`take_next`](Self::take_next) gave is somebody's who confirms it later. It has no time limit.
    pub(crate) fn lend(&mut self, item: Item) {
        self.counters.transactions += 1;
        let open = Open {
            item,
            connection: ConnectionId::LENT,
            deadline_us: None,
        };
        self.insert_open(open);
    }

    /// An item that was added by `added_by_ms` leaves for good, wherever it is; false if it has left before. A later one with
    /// this id is of a queue that was deleted and began anew.
    ///
    /// # Errors
    /// It is in the log only and cannot be read; its removal cannot be recorded.
    pub(crate) fn remove(&mut self, id: u64, added_by_ms: u64) -> Result<bool, QueueError> {
        self.reserve_removals(1)?;
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
                Some(length) => length,
                None => return Ok(false),
            },
        };
        self.items -= 1;
        self.bytes -= length as u64;
        self.record_removal(id, length);
        Ok(true)
    }

    /// An item that is in the log only leaves its place, if it has one; its length.
    fn remove_from_log(&mut self, id: u64, added_by_ms: u64) -> Result<Option<usize>, QueueError> {
        let delayed = self.delayed.due_ms(id).is_some();
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
        if item.id != id || item.added_ms > added_by_ms || (due_ms != 0) != delayed {
            return Ok(None);
        }
        if !self.delayed.remove(id) {
            self.backlog.items -= 1;
            self.backlog.removed.insert(id);
        }
        Ok(Some(item.body.len()))
    }

    /// All items before this one that `source` has numbered have come.
    pub(crate) fn next_index(&self, source: u64) -> u64 {
        self.source_positions.next(source)
    }

    /// Say how far the items of `source` have come, for a queue that keeps none of them.
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
