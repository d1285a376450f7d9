//! Putting an item into a queue, its fan-out queues, or the queues of an alias: all or none.

use std::sync::Arc;

use millstream_journal::chain;

use super::connection::{QueueId, Wait};
use super::{Broker, Status};
use crate::config::Sync;
use crate::error::QueueError;
use crate::item::NewItem;
use crate::moment::Moment;
use crate::name;
use crate::protocol::SetKey;
use crate::queue::refusals::Refused;
use crate::queue::{Admission, DeadLetter, Next, ids};
use crate::round::Round;
use crate::storage::Storage;

/// The outcome of a `set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The item is in all its queues.
    Stored,
    /// The item is in none of them.
    Refused(Refusal),
}

/// Why an item was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A queue has as many items, or bytes, as it may have.
    Full,
    /// The item is larger than an item of a queue may be.
    TooLarge,
    /// The server accepts no sets.
    Status,
}

impl<S: Storage> Broker<S> {
    /// Put an item into a queue, its fan-out queues, or those of an alias.
    ///
    /// # Errors
    /// The storage fails, or the name is not valid; the item is in none of the queues.
    #[inline]
    pub fn put(
        &mut self,
        key: &SetKey<'_>,
        item: &NewItem<'_>,
        now: Moment,
    ) -> Result<PutOutcome, QueueError> {
        self.counters.cmd_set += 1;
        if self.status != Status::Up {
            return Ok(PutOutcome::Refused(Refusal::Status));
        }
        let mut targets = std::mem::take(&mut self.targets);
        let outcome = self.put_into(key, item, &mut targets, now);
        targets.clear();
        self.targets = targets;
        match outcome {
            Ok(()) => Ok(PutOutcome::Stored),
            Err(error) => self.refuse(error, now),
        }
    }

    /// Counts a refused item for the queue that has refused it.
    #[cold]
    fn refuse(&mut self, error: QueueError, now: Moment) -> Result<PutOutcome, QueueError> {
        let (queue, why) = match &error {
            QueueError::BeingCreated { .. } => {
                // It will be done again.
                self.counters.cmd_set -= 1;
                return Err(error);
            }
            QueueError::Full { queue } => (queue, Refused::Full),
            QueueError::TooLarge { queue, .. } => (queue, Refused::TooLarge),
            QueueError::TooManyIds { queue, .. } => (queue, Refused::TooManyIds),
            QueueError::NoFanout(queue) => (queue, Refused::NoFanout),
            QueueError::Storage { queue, .. } => (queue, Refused::Disk),
            _ => return Err(error),
        };
        let id = self.names.get(queue.as_str()).copied();
        if let Some(queue) = id.and_then(|id| self.queue_mut(id)) {
            queue.refuse(why, &chain(&error), now);
        }
        match why {
            Refused::Full => Ok(PutOutcome::Refused(Refusal::Full)),
            Refused::TooLarge => Ok(PutOutcome::Refused(Refusal::TooLarge)),
            _ => Err(error),
        }
    }

    #[inline]
    fn put_into(
        &mut self,
        key: &SetKey<'_>,
        item: &NewItem<'_>,
        targets: &mut Vec<QueueId>,
        now: Moment,
    ) -> Result<(), QueueError> {
        match self.config.alias(key.name).map(<[String]>::to_vec) {
            None => self.targets_of(key.name, targets, now)?,
            Some(names) => names
                .iter()
                .try_for_each(|name| self.targets_of(name, targets, now))?,
        }
        let mut item = *item;
        if key.delay_ms != 0 {
            item.due_ms = now.wall_ms.saturating_add(key.delay_ms);
        }
        if let Some(id) = key.id {
            item.once = Some(ids::key_of(id));
            if self.skip_known(key, targets, now)? {
                return Ok(());
            }
        }
        let mut skipping = false;
        let mut all_exist = true;
        for &target in &*targets {
            let Some(queue) = self.queue(target) else {
                continue;
            };
            all_exist &= queue.exists();
            match queue.admits(item.body.len()) {
                Admission::Yes => {}
                Admission::Full if queue.settings.skip_full && is_child(&queue.name, key.name) => {
                    skipping = true;
                }
                Admission::Full => {
                    let queue = queue.name.to_string();
                    return Err(QueueError::Full { queue });
                }
                Admission::TooLarge => {
                    let (queue, bytes) = (queue.name.to_string(), item.body.len());
                    return Err(QueueError::TooLarge { queue, bytes });
                }
            }
        }
        if skipping {
            self.skip_full(key.name, item.body.len(), targets, now);
        }
        if !all_exist {
            self.create_logs(targets)?;
        }
        let mut shared: Option<Arc<[u8]>> = None;
        for at in 0..targets.len() {
            let Some(queue) = self.queue_mut(targets[at]) else {
                continue;
            };
            if let Err(error) = queue.add(&item, &mut shared, now) {
                match item.once {
                    None => self.retract(&targets[..at], item.body.len()),
                    // They have its id: when it is set again, the others get it.
                    Some(_) => self.after_puts(&targets[..at], key.sync, now),
                }
                return Err(error);
            }
        }
        self.counters.total_items += 1;
        self.after_puts(targets, key.sync, now);
        Ok(())
    }

    #[inline]
    fn after_puts(&mut self, targets: &[QueueId], sync: bool, now: Moment) {
        for &target in targets {
            self.after_put(target, sync, now);
        }
    }

    /// Removes from the targets the full fan-out queues that skip items.
    #[cold]
    fn skip_full(&mut self, name: &str, length: usize, targets: &mut Vec<QueueId>, now: Moment) {
        targets.retain(|&target| {
            let Some(queue) = self.queue_mut(target) else {
                return true;
            };
            let skips = queue.admits(length) == Admission::Full
                && queue.settings.skip_full
                && is_child(&queue.name, name);
            if skips {
                let name = Arc::clone(&queue.name);
                let words = format_args!(
                    "queue \"{name}\" is full and gets no copies, as its on_full says"
                );
                queue.refuse(Refused::Skipped, &words, now);
            }
            !skips
        });
    }

    /// Completes a put into one queue.
    #[inline]
    pub(super) fn after_put(&mut self, target: QueueId, sync: bool, now: Moment) {
        self.schedule_sync(target, sync, now);
        self.discard_old(target, now, &mut self.round());
        self.dispatch(target, now);
    }

    /// Adds the queues that get the items of this name.
    #[inline]
    pub(super) fn targets_of(
        &mut self,
        name: &str,
        targets: &mut Vec<QueueId>,
        now: Moment,
    ) -> Result<(), QueueError> {
        let id = self.get_or_create(name, now)?;
        if !self.closed.is_empty() {
            self.closed_children(name, targets, now)?;
        }
        let slot = &self.slots[id.slot as usize];
        let fanout_only = slot
            .queue
            .as_ref()
            .is_some_and(|queue| queue.settings.fanout_only);
        if fanout_only && slot.children.is_empty() && self.closed.children_of(name).is_empty() {
            return Err(QueueError::NoFanout(name.to_owned()));
        }
        let own = if fanout_only { None } else { Some(id) };
        for target in own.into_iter().chain(slot.children.iter().copied()) {
            add_target(targets, target);
        }
        Ok(())
    }

    /// Removes an item from the queues to which it was added before another queue refused it.
    #[cold]
    fn retract(&mut self, targets: &[QueueId], length: usize) {
        for &target in targets {
            if let Some(queue) = self.queue_mut(target) {
                queue.retract_newest(length);
            }
        }
    }

    /// Where the policy is a time, an item is acknowledged at once only within that time of the first one that may be
    /// lost: the timer may be late.
    #[inline]
    pub(super) fn schedule_sync(&mut self, id: QueueId, forced: bool, now: Moment) {
        let Some(slot) = self.slots.get_mut(id.slot as usize) else {
            return;
        };
        let waits = slot
            .queue
            .as_ref()
            .is_some_and(|queue| match queue.settings.sync {
                Sync::Always => true,
                Sync::Never => false,
                Sync::Every(_) => queue.sync_due().is_some_and(|due| due <= now.steady_us),
            });
        if waits || forced {
            self.commit_wanted = true;
            if !slot.dirty {
                slot.dirty = true;
                self.dirty.push(id);
            }
        }
    }

    /// After each change of a queue: moves its dead letters and serves its waiters.
    #[inline]
    pub(super) fn dispatch(&mut self, id: QueueId, now: Moment) {
        if let Some(left_to) = self.dispatch_one(id, now) {
            self.dispatch_chain(left_to, now);
        }
    }

    /// A dead letter may push an item out of its new queue, and so on.
    #[cold]
    fn dispatch_chain(&mut self, mut agenda: Vec<QueueId>, now: Moment) {
        while let Some(id) = agenda.pop() {
            agenda.extend(self.dispatch_one(id, now).into_iter().flatten());
        }
    }

    /// Returns the queues to which dead letters were moved.
    #[inline]
    fn dispatch_one(&mut self, id: QueueId, now: Moment) -> Option<Vec<QueueId>> {
        let queue = self.queue_mut(id)?;
        if !queue.waiters.is_empty() {
            self.serve_waiters(id, now);
        }
        let left_to = self
            .queue(id)
            .is_some_and(|queue| queue.has_dead_letters())
            .then(|| self.move_dead_letters(id, now));
        self.set_timer(id.slot, now);
        left_to
    }

    /// Waiters are served in FIFO order. An item is held for the connection until that resumes.
    fn serve_waiters(&mut self, id: QueueId, now: Moment) {
        let mut round = self.round();
        while let Some(queue) = self.queue_mut(id) {
            let Some(&waiter) = queue.waiters.front() else {
                return;
            };
            // What is left of a search is done in the next round of the queue.
            let Ok(Next::Item(item)) = queue.take_next(now, &mut round) else {
                return;
            };
            queue.waiters.pop_front();
            let item_id = item.id;
            queue.open(item, waiter, now);
            self.end_wait(
                waiter,
                Wait::Granted {
                    queue: id,
                    id: item_id,
                },
            );
        }
    }

    /// Moves expired and failed items to their queues, whatever the limits of those are. An item is safe in the new
    /// queue before it is removed from the old one: a crash may duplicate it, not lose it.
    #[cold]
    fn move_dead_letters(&mut self, from: QueueId, now: Moment) -> Vec<QueueId> {
        let Some(source) = self.queue_mut(from) else {
            return Vec::new();
        };
        let durable = source.settings.sync != Sync::Never;
        let dead_letters = source.take_dead_letters();
        let name = Arc::clone(&source.name);
        let mut targets = Vec::new();
        let mut are_added = Vec::with_capacity(dead_letters.len());
        for letter in &dead_letters {
            let added = self.add_letter(&name, letter, now);
            are_added.push(added.is_ok());
            let added = added.into_iter().flatten();
            added.for_each(|target| add_target(&mut targets, target));
        }
        let synced = !durable
            || targets.iter().all(|&target| {
                self.queue_mut(target)
                    .is_none_or(|target| target.sync().is_ok())
            });
        if let Some(source) = self.queue_mut(from) {
            for (letter, is_added) in dead_letters.into_iter().zip(are_added) {
                if is_added && synced {
                    source.record_retired(&letter.item, letter.reason, true);
                } else {
                    source.reinsert(letter.item);
                }
            }
        }
        for &target in &targets {
            self.discard_old(target, now, &mut self.round());
        }
        targets
    }

    /// Adds an item of another queue to the queue to which it moves, and to the fan-out queues of that. Returns these.
    fn add_letter(
        &mut self,
        from: &str,
        letter: &DeadLetter,
        now: Moment,
    ) -> Result<Vec<QueueId>, QueueError> {
        let history = Arc::new(letter.item.history_after(from, letter.reason, now));
        let new = NewItem {
            flags: letter.item.flags,
            history: Some(&history),
            body: &letter.item.body,
            ..NewItem::default()
        };
        let mut targets = Vec::new();
        self.targets_of(&letter.to, &mut targets, now)?;
        let length = new.body.len();
        self.skip_full(&letter.to, length, &mut targets, now);
        let mut shared = Some(Arc::clone(&letter.item.body));
        for at in 0..targets.len() {
            let Some(queue) = self.queue_mut(targets[at]) else {
                continue;
            };
            if let Err(error) = queue.add(&new, &mut shared, now) {
                self.retract(&targets[..at], length);
                return Err(error);
            }
        }
        Ok(targets)
    }

    /// Removes the oldest items of a queue that is over its limits, if its settings say so.
    #[inline]
    pub(super) fn discard_old(&mut self, target: QueueId, now: Moment, round: &mut Round) {
        if let Some(queue) = self
            .queue_mut(target)
            .filter(|queue| queue.settings.discard_old)
        {
            // If an item cannot be read back now, the queue stays over its limit for a while.
            let _ = queue.discard_old(now, round);
        }
    }
}

/// Adds a queue that gets an item, once.
#[inline]
pub(super) fn add_target(targets: &mut Vec<QueueId>, target: QueueId) {
    if !targets.contains(&target) {
        targets.push(target);
    }
}

/// Whether the queue is a fan-out queue of `name`, which is its parent or an alias.
fn is_child(queue: &str, name: &str) -> bool {
    queue != name && name::parent(queue).is_some()
}
