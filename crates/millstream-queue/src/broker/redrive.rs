//! Redrive: dead letters move back to a queue that is read.

use std::sync::Arc;

use super::Broker;
use super::connection::QueueId;
use crate::config::Sync;
use crate::error::QueueError;
use crate::item::{Item, NewItem};
use crate::moment::Moment;
use crate::queue::{Admission, Next};
use crate::round::Round;
use crate::storage::Storage;

/// The number of items that one request moves at most.
pub const REDRIVE_ITEMS_MAX: u64 = 1_000;

/// A redrive that is done in rounds.
#[derive(Debug)]
pub(crate) struct Redrive {
    from: String,
    to: String,
    /// How many items it may still move, and how many it has moved.
    left: u64,
    moved: u64,
}

impl Redrive {
    /// How many items were moved, or why no more.
    pub(crate) fn outcome(&self, last: Result<(), QueueError>) -> Result<u64, QueueError> {
        match last {
            Err(error) if self.moved > 0 => Err(QueueError::Partly {
                stored: self.moved as usize,
                cause: Box::new(error),
            }),
            last => last.map(|()| self.moved),
        }
    }
}

impl<S: Storage> Broker<S> {
    /// Moves the oldest items of the queue `from` to the end of the queue `to`: bytes, flags, history, and the expiry
    /// that they had before they failed, unless that time is over. Delayed items keep the end of their delay. Their
    /// delivery count starts at 0. At most `items_max` and [`REDRIVE_ITEMS_MAX`] items are moved; the number is
    /// returned. The fan-out queues of `to` get no copies: they had theirs.
    ///
    /// An item is as safe in its new queue as `from` promises before it is removed from the old one: a crash may
    /// duplicate it, not lose it.
    ///
    /// # Errors
    /// The queues are the same; the queue `from` is closed or does not exist; `to` does not take its oldest item: it is
    /// full, closed, an alias, or keeps no items. Items moved before that stay moved.
    pub fn redrive(
        &mut self,
        from: &str,
        to: &str,
        items_max: u64,
        now: Moment,
    ) -> Result<u64, QueueError> {
        let mut redrive = self.begin_redrive(from, to, items_max);
        loop {
            match self.redrive_some(&mut redrive, now, &mut self.round()) {
                Ok(false) => {}
                last => return redrive.outcome(last.map(|_| ())),
            }
        }
    }

    /// A redrive of at most `items_max` and [`REDRIVE_ITEMS_MAX`] items, and of no more than the queue has now: one
    /// that fails again meanwhile is not moved twice.
    pub(crate) fn begin_redrive(&self, from: &str, to: &str, items_max: u64) -> Redrive {
        // Where there is no queue, the first round says so.
        let there = self.items(from).unwrap_or(0).max(1);
        Redrive {
            from: from.to_owned(),
            to: to.to_owned(),
            left: items_max.min(REDRIVE_ITEMS_MAX).min(there),
            moved: 0,
        }
    }

    /// Does a round of a redrive. Returns whether that was the last one.
    ///
    /// # Errors
    /// As for [`redrive`](Self::redrive).
    pub(crate) fn redrive_some(
        &mut self,
        redrive: &mut Redrive,
        now: Moment,
        round: &mut Round,
    ) -> Result<bool, QueueError> {
        let source = self.redrive_source(&redrive.from, &redrive.to)?;
        let target = self.get_or_create(&redrive.to, now)?;
        let settings = self.settings(target);
        if settings.is_some_and(|settings| settings.fanout_only) {
            return Err(QueueError::FanoutOnly(redrive.to.clone()));
        }
        let mut moved = Vec::new();
        let mut outcome = Ok(false);
        while round.has_room() && (moved.len() as u64) < redrive.left {
            let queue = self.queue_mut(source);
            let next = queue.map(|queue| queue.take_oldest(now, round));
            let (item, due_ms) = match next.transpose() {
                Ok(Some((Next::Item(item), due_ms))) => (item, due_ms),
                Ok(Some((Next::Unfinished, _))) => break,
                Ok(_) => {
                    outcome = Ok(true);
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            match self.add_whole(target, &item, due_ms, now) {
                Ok(()) => {
                    // It is read here and written there.
                    round.took_item(item.body.len());
                    round.took_item(item.body.len());
                    moved.push((item, due_ms));
                }
                Err(error) => {
                    outcome = Err(error);
                    self.reinsert(source, [(item, due_ms)]);
                    break;
                }
            }
        }
        let count = moved.len() as u64;
        let completed = self.complete_move(source, target, moved);
        if completed.is_ok() {
            (redrive.left, redrive.moved) = (redrive.left - count, redrive.moved + count);
        }
        self.after_put(target, false, now);
        self.dispatch(source, now);
        completed?;
        outcome.map(|is_over| is_over || redrive.left == 0)
    }

    /// Removes items from a queue, once they are safe in the other. Otherwise they stay in it.
    fn complete_move(
        &mut self,
        source: QueueId,
        target: QueueId,
        moved: Vec<(Item, u64)>,
    ) -> Result<(), QueueError> {
        let durable = self
            .settings(source)
            .is_some_and(|settings| settings.sync != Sync::Never);
        let synced = match self.queue_mut(target) {
            Some(target) if durable && !moved.is_empty() => target.sync(),
            _ => Ok(()),
        };
        match (&synced, self.queue_mut(source)) {
            (Ok(()), Some(queue)) => moved
                .iter()
                .for_each(|(item, _)| queue.record_removal(item.id, item.body.len())),
            (Err(_), _) => self.reinsert(source, moved),
            (Ok(()), None) => {}
        }
        synced
    }

    /// The queue that items leave, if they may move from it to the other.
    fn redrive_source(&self, from: &str, to: &str) -> Result<QueueId, QueueError> {
        if from == to {
            return Err(QueueError::Itself(from.to_owned()));
        }
        self.check_not_closed(from)?;
        let source = self.names.get(from).copied();
        let source = source.ok_or_else(|| QueueError::Missing(from.to_owned()))?;
        match self.config.alias(to) {
            Some(_) => Err(QueueError::Alias(to.to_owned())),
            None => Ok(source),
        }
    }

    /// Copies an item to the end of a queue, if the queue takes it.
    fn add_whole(
        &mut self,
        target: QueueId,
        item: &Item,
        due_ms: u64,
        now: Moment,
    ) -> Result<(), QueueError> {
        let Some(target) = self.queue_mut(target) else {
            return Ok(());
        };
        let new = NewItem {
            flags: item.flags,
            expiry_ms: item.expiry_after_redrive_ms(now),
            due_ms,
            history: item.history.as_ref(),
            body: &item.body,
            ..NewItem::default()
        };
        let mut shared = Some(Arc::clone(&item.body));
        let queue = target.name.to_string();
        match target.admits(item.body.len()) {
            Admission::Yes => target.add(&new, &mut shared, now).map(|_| ()),
            Admission::Full => Err(QueueError::Full { queue }),
            Admission::TooLarge => Err(QueueError::TooLarge {
                queue,
                bytes: item.body.len(),
            }),
        }
    }

    fn reinsert(&mut self, id: QueueId, items: impl IntoIterator<Item = (Item, u64)>) {
        if let Some(queue) = self.queue_mut(id) {
            let items = items.into_iter();
            items.for_each(|(item, due_ms)| queue.reinsert_oldest(item, due_ms));
        }
    }
}
