//! Removing items that have expired, in memory and in the backlog.

use super::{Log, Queue};
use crate::error::QueueError;
use crate::moment::Moment;
use crate::storage::operation::Operation;

/// The number of records that take as long to read as an item to remove.
const RECORDS_FOR_AN_ITEM: usize = 4;

impl<L: Log> Queue<L> {
    /// Ends delays and removes all expired items. Returns how many.
    pub(crate) fn sweep_all(&mut self, now: Moment) -> Result<usize, QueueError> {
        self.backlog.expiries.resume();
        self.sweep(now, usize::MAX)
    }

    /// Ends delays and removes about `budget` expired items. Returns how many.
    pub(crate) fn sweep(&mut self, now: Moment, budget: usize) -> Result<usize, QueueError> {
        self.end_delays(now)?;
        let mut expired = 0;
        while expired < budget {
            let Some(item) = self.ready.pop_expired(now) else {
                break;
            };
            self.items -= 1;
            self.bytes -= item.body.len() as u64;
            self.expire(item);
            expired += 1;
        }
        Ok(expired + self.sweep_backlog(now, budget - expired)?)
    }

    /// Removes about `budget` items of the backlog that have expired. Returns how many.
    fn sweep_backlog(&mut self, now: Moment, budget: usize) -> Result<usize, QueueError> {
        let (mut expired, mut read) = (0, 0);
        while expired < budget && read / RECORDS_FOR_AN_ITEM < budget {
            let Some(block) = self.backlog.expiries.take_due(now) else {
                break;
            };
            let range = block.start.max(self.backlog.position)..block.end.min(self.log.next());
            for position in range {
                match self.expire_in_backlog(position, now) {
                    Ok(true) => expired += 1,
                    Ok(false) => {}
                    Err(error) => {
                        // The next round tries again.
                        self.backlog.expiries.insert(position, now.wall_ms);
                        self.backlog.expiries.pause(now);
                        return Err(error);
                    }
                }
                read += 1;
            }
        }
        if expired > 0 {
            // The backlog begins with the first item that is left.
            let _added_ms = self.first_backlog_added_ms();
            self.compact_if_due();
        }
        Ok(expired)
    }

    /// Removes the item at this position if it has expired, and notes otherwise when it will.
    fn expire_in_backlog(&mut self, position: u64, now: Moment) -> Result<bool, QueueError> {
        if self.backlog.items == 0 || self.backlog.removed.contains(position) {
            return Ok(false);
        }
        let expiry_ms = self.expiry_at(position)?;
        if expiry_ms == 0 || expiry_ms > now.wall_ms {
            self.backlog.expiries.insert(position, expiry_ms);
            return Ok(false);
        }
        if let Some((mut item, _)) = self.read_item(position)? {
            if let Some(known) = self.backlog.deliveries.remove(&item.id) {
                item.came_back(known.count, known.first_ms);
            }
            self.backlog.removed.insert(position);
            self.backlog.items -= 1;
            self.items -= 1;
            self.bytes -= item.body.len() as u64;
            self.expire(item);
        }
        Ok(true)
    }

    /// The expiry in a record that adds an item to the backlog; 0 is never.
    fn expiry_at(&mut self, position: u64) -> Result<u64, QueueError> {
        let record = match self.log.read(position) {
            Ok(record) => record,
            Err(cause) => return Err(self.fault(cause)),
        };
        let head = Operation::decode(record)
            .ok()
            .and_then(|record| record.head_of_ready());
        Ok(head.map_or(0, |head| head.expiry_ms))
    }
}
