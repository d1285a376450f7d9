//! Removing items that have expired, in memory and in the backlog.

use super::{Log, Queue};
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::round::Round;
use crate::storage::operation::Operation;

/// The number of records that take as long to read as an item to remove.
const RECORDS_FOR_AN_ITEM: usize = 4;
/// The number of records that are read together.
const RECORDS_IN_BLOCK: usize = super::expiries::RECORDS as usize;

impl<L: Log> Queue<L> {
    /// Does a round of [`sweep`](Self::sweep) that looks for all items that have expired by now, also in the backlog.
    pub(crate) fn sweep_now(
        &mut self,
        now: Moment,
        round: &mut Round,
    ) -> Result<usize, QueueError> {
        self.backlog.expiries.resume();
        self.sweep(now, round)
    }

    /// Ends delays and removes expired items until the round is over. Returns how many expired.
    pub(crate) fn sweep(&mut self, now: Moment, round: &mut Round) -> Result<usize, QueueError> {
        self.is_unfinished = false;
        let mut expired = self.end_delays(now, round)?;
        while round.has_room()
            && let Some(item) = self.ready.pop_expired(now)
        {
            self.leave_expired(item, round);
            expired += 1;
        }
        while round.has_room()
            && let Some(id) = self.due.expired(now)
        {
            let item = self.read_item(self.relocations.position(id))?;
            self.due.remove(id);
            if let Some((item, _)) = item {
                self.leave_expired(item, round);
                expired += 1;
            }
        }
        expired += self.sweep_backlog(now, round)?;
        self.is_unfinished |= !round.has_room();
        Ok(expired)
    }

    /// An item that is no longer in memory, in the backlog or due leaves the queue.
    pub(super) fn leave_expired(&mut self, item: Item, round: &mut Round) {
        self.backlog.deliveries.remove(&item.id);
        self.items -= 1;
        self.bytes -= item.body.len() as u64;
        round.took_item(item.body.len());
        if self.settings.expire_to.is_some() {
            // It is added to another queue.
            round.took_item(item.body.len());
        }
        self.expire(item);
    }

    /// Removes items of the backlog that have expired, until the round is over. Returns how many.
    fn sweep_backlog(&mut self, now: Moment, round: &mut Round) -> Result<usize, QueueError> {
        let mut expired = 0;
        while round.has_room() {
            let Some(block) = self.backlog.expiries.take_due(now) else {
                break;
            };
            let range = block.start.max(self.backlog.position)..block.end.min(self.log.next());
            for position in range {
                match self.expire_in_backlog(position, now, round) {
                    Ok(true) => expired += 1,
                    Ok(false) => {}
                    Err(error) => {
                        // The next round tries again.
                        self.backlog.expiries.insert(position, now.wall_ms);
                        self.backlog.expiries.pause(now);
                        return Err(error);
                    }
                }
            }
            round.took(RECORDS_IN_BLOCK / RECORDS_FOR_AN_ITEM);
        }
        if expired > 0 {
            // The backlog begins with the first item that is left.
            let _added_ms = self.first_backlog_added_ms();
            self.compact_if_due();
        }
        Ok(expired)
    }

    /// Removes the item at this position if it has expired, and notes otherwise when it will.
    fn expire_in_backlog(
        &mut self,
        position: u64,
        now: Moment,
        round: &mut Round,
    ) -> Result<bool, QueueError> {
        if self.backlog.items == 0 || self.backlog.removed.contains(position) {
            return Ok(false);
        }
        let expiry_ms = self.expiry_at(position)?;
        if expiry_ms == 0 || expiry_ms > now.wall_ms {
            self.backlog.expiries.insert(position, expiry_ms);
            return Ok(false);
        }
        if let Some((item, _)) = self.read_item(position)? {
            self.backlog.removed.insert(position);
            self.backlog.items -= 1;
            self.leave_expired(item, round);
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
