//! Items that are not served before their time: they begin to wait, and their delay ends.

use std::time::Duration;

use super::{Deliveries, Log, Next, Queue, READ_BACK_ITEMS};
use crate::error::{Cause, QueueError};
use crate::item::Item;
use crate::moment::Moment;
use crate::round::Round;

impl<L: Log> Queue<L> {
    /// Requeues an item that [`take_next`](Self::take_next) took and that is not served before `delay` is over. Its
    /// record is written again.
    ///
    /// # Errors
    /// The record cannot be written: nothing has changed.
    pub(super) fn defer(&mut self, item: &Item, delay: Duration, now: Moment) -> Result<(), Cause> {
        let delay_ms = u64::try_from(delay.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        let due_ms = now.wall_ms.saturating_add(delay_ms);
        self.rewrite(item, due_ms)?;
        self.delay(item, due_ms);
        Ok(())
    }

    /// Makes the items ready whose delay is over: those whose delay ends first come first, and of these the oldest.
    /// What does not fit into memory stays in the log. An item that expires before its delay is over leaves then.
    /// Returns how many expired.
    #[inline]
    pub(super) fn end_delays(
        &mut self,
        now: Moment,
        round: &mut Round,
    ) -> Result<usize, QueueError> {
        let mut expired = 0;
        while let Some((until_ms, id)) = self.delayed.first() {
            if until_ms > now.wall_ms {
                break;
            }
            if !round.has_room() {
                self.is_unfinished = true;
                break;
            }
            let item = self.read_item(self.relocations.position(id))?;
            self.delayed.remove(id);
            let Some((item, _)) = item else {
                continue;
            };
            if item.expired(now) {
                self.leave_expired(item, round);
                expired += 1;
                continue;
            }
            round.took_item(item.body.len());
            if self.due.is_empty() && self.has_memory(item.body.len()) {
                self.end_delay(item)
            } else {
                self.due.insert(id, item.expiry_ms)
            }
        }
        Ok(expired)
    }

    /// An item that was delayed or due is ready.
    fn end_delay(&mut self, item: Item) {
        self.backlog.deliveries.remove(&item.id);
        self.ready.insert(item);
    }

    /// Reads the due items into memory that come before all others, with some that follow them.
    pub(super) fn read_due(&mut self) -> Result<(), QueueError> {
        let next = self.ready.next_id();
        let mut read = 0;
        while let Some(id) = self.due.first() {
            let is_next = read == 0 && next.is_none_or(|next| id < next);
            let may_follow = read > 0 && read < READ_BACK_ITEMS && self.has_memory(0);
            if !is_next && !may_follow {
                break;
            }
            let item = self.read_item(self.relocations.position(id))?;
            self.due.remove(id);
            if let Some((item, _)) = item {
                self.end_delay(item);
            }
            read += 1;
        }
        Ok(())
    }

    /// Takes the oldest item, also if it is delayed, and the end of its delay; 0 is none.
    pub(crate) fn take_oldest(
        &mut self,
        now: Moment,
        round: &mut Round,
    ) -> Result<(Next, u64), QueueError> {
        let next = self.take_next(now, round)?;
        let Some(delayed) = self.delayed.oldest() else {
            return Ok((next, 0));
        };
        match next {
            Next::Item(item) if delayed > item.id => return Ok((Next::Item(item), 0)),
            Next::Item(item) => self.reinsert(item),
            Next::Unfinished => return Ok((next, 0)),
            Next::Nothing => {}
        }
        let due_ms = self.delayed.due_ms(delayed).unwrap_or(0);
        let read = self.read_item(self.relocations.position(delayed))?;
        self.delayed.remove(delayed);
        let Some((item, _)) = read else {
            return Ok((Next::Nothing, 0));
        };
        self.backlog.deliveries.remove(&delayed);
        self.left_memory(&item);
        Ok((Next::Item(item), due_ms))
    }

    /// Returns an item that [`take_oldest`](Self::take_oldest) took.
    pub(crate) fn reinsert_oldest(&mut self, item: Item, due_ms: u64) {
        if due_ms == 0 {
            return self.reinsert(item);
        }
        self.delay(&item, due_ms);
    }

    /// Adds an item to those that are delayed. Its bytes are in the log.
    fn delay(&mut self, item: &Item, due_ms: u64) {
        self.items += 1;
        self.bytes += item.body.len() as u64;
        if item.deliveries > 0 {
            let known = Deliveries {
                count: item.deliveries,
                first_ms: item.first_failed_ms(),
            };
            self.backlog.deliveries.insert(item.id, known);
        }
        self.delayed.insert(item.id, due_ms, item.expiry_ms);
    }
}
