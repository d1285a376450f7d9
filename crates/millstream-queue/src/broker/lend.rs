//! Lent items, which are confirmed later by their ids, and numbered items, which are put once: the input and output
//! of flows.

use std::sync::Arc;

use super::{Broker, Unsynced};
use crate::error::QueueError;
use crate::item::{Item, NewItem};
use crate::moment::Moment;
use crate::queue::Next;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// Takes up to `items_max` items of about `bytes_max` bytes together. Each is open, without a time limit, until it
    /// is [confirmed](Self::confirm_lent) or [returned](Self::return_lent). The queue is created if necessary. Returns
    /// whether the search is over: otherwise another call may find an item.
    ///
    /// # Errors
    /// The storage fails; items taken before that are in `out`.
    pub fn lend(
        &mut self,
        name: &str,
        (items_max, bytes_max): (usize, usize),
        now: Moment,
        out: &mut Vec<Item>,
    ) -> Result<bool, QueueError> {
        let id = self.get_or_create(name, now)?;
        let mut round = self.round();
        let mut items = 0;
        let mut bytes = 0;
        let mut is_over = true;
        while items < items_max && bytes < bytes_max {
            let Some(queue) = self.queue_mut(id) else {
                break;
            };
            let item = match queue.take_next(now, &mut round)? {
                Next::Item(item) => item,
                none => {
                    is_over = matches!(none, Next::Nothing);
                    break;
                }
            };
            queue.lend(item.clone());
            (items, bytes) = (items + 1, bytes + item.body.len());
            out.push(item);
        }
        self.counters.cmd_get += items as u64;
        self.counters.get_hits += items as u64;
        self.dispatch(id, now);
        Ok(is_over)
    }

    /// Removes the items with these ids, the latest of them added at `added_by_ms`, also if a restart has requeued
    /// them. Ids of items that have left before are skipped.
    ///
    /// # Errors
    /// The storage fails; the other items are removed.
    pub fn confirm_lent(
        &mut self,
        name: &str,
        ids: impl IntoIterator<Item = u64>,
        added_by_ms: u64,
        now: Moment,
    ) -> Result<(), QueueError> {
        let mut outcome = self.check_not_closed(name);
        let Some(&id) = self.names.get(name) else {
            return outcome;
        };
        if let Some(queue) = self.queue_mut(id) {
            for item in ids {
                outcome = outcome.and(queue.remove(item, added_by_ms).map(|_| ()));
            }
        }
        self.dispatch(id, now);
        outcome
    }

    /// Returns lent items to the queue, as if they had never been lent.
    pub fn return_lent(&mut self, name: &str, ids: impl IntoIterator<Item = u64>, now: Moment) {
        let Some(&id) = self.names.get(name) else {
            return;
        };
        if let Some(queue) = self.queue_mut(id) {
            ids.into_iter().for_each(|item| queue.undo_open(item));
        }
        self.dispatch(id, now);
    }

    /// Puts an item whatever the limits of its queues are. A numbered item is put into each queue once: a queue that
    /// has it skips it, so that a failed put can be repeated.
    ///
    /// # Errors
    /// The storage fails: the item may be in some of the queues. The name is an alias: no single queue could keep the
    /// number.
    pub fn put_always(
        &mut self,
        name: &str,
        item: &NewItem<'_>,
        now: Moment,
    ) -> Result<(), QueueError> {
        if self.config.alias(name).is_some() {
            return Err(QueueError::Alias(name.to_owned()));
        }
        let own = self.get_or_create(name, now)?;
        let mut targets = Vec::new();
        self.targets_of(name, &mut targets, now)?;
        // The queue itself comes last: the number that it keeps holds for all.
        targets.retain(|target| *target != own);
        let keeps = self
            .settings(own)
            .is_some_and(|settings| !settings.fanout_only);
        if keeps {
            targets.push(own);
        }
        let mut shared: Option<Arc<[u8]>> = None;
        for &target in &targets {
            let Some(queue) = self.queue_mut(target) else {
                continue;
            };
            if item
                .from
                .is_none_or(|(source, index)| queue.next_index(source) <= index)
            {
                queue.add(item, &mut shared, now)?;
            }
        }
        if let (false, Some((source, index)), Some(queue)) = (keeps, item.from, self.queue_mut(own))
        {
            queue.set_next_index(source, index + 1)?;
        }
        self.counters.cmd_set += 1;
        self.counters.total_items += 1;
        targets
            .into_iter()
            .for_each(|target| self.after_put(target, false, now));
        Ok(())
    }

    /// The number of the next item of `source` that a queue does not have.
    ///
    /// # Errors
    /// The queue is closed.
    pub fn next_index(&self, name: &str, source: u64) -> Result<u64, QueueError> {
        self.check_not_closed(name)?;
        let queue = self.names.get(name).and_then(|id| self.queue(*id));
        Ok(queue.map_or(0, |queue| queue.next_index(source)))
    }

    /// The logs of a queue and of its fan-out queues, for a caller that syncs them without holding the broker.
    pub(crate) fn logs_of(&self, name: &str) -> Vec<Unsynced<S>> {
        let Some(&own) = self.names.get(name) else {
            return Vec::new();
        };
        let children = self.slots[own.slot as usize].children.iter().copied();
        let queues = children.chain([own]).filter_map(|id| self.queue(id));
        queues
            .map(|queue| (Arc::clone(&queue.name), queue.syncing()))
            .collect()
    }
}
