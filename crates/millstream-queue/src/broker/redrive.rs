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

/// The number of items that one call moves at most, so that no request waits long for it.
pub const REDRIVE_ITEMS_MAX: u64 = 1_000;

impl<S: Storage> Broker<S> {
    /// Moves the oldest items of the queue `from` to the end of the queue `to`: bytes, flags, history, and the expiry
    /// that they had before they failed, unless that time is over. Delayed items keep the end of their delay. Their delivery count starts at 0. At most
    /// `items_max` and [`REDRIVE_ITEMS_MAX`] items are moved; the number is returned. The fan-out queues of `to` get
    /// no copies: they had theirs.
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
        let source = self.redrive_source(from, to)?;
        let target = self.get_or_create(to, now)?;
        let settings = self.settings(target);
        if settings.is_some_and(|settings| settings.fanout_only) {
            return Err(QueueError::FanoutOnly(to.to_owned()));
        }
        let durable = self
            .settings(source)
            .is_some_and(|settings| settings.sync != Sync::Never);
        let mut moved = Vec::new();
        let mut outcome = Ok(());
        while (moved.len() as u64) < items_max.min(REDRIVE_ITEMS_MAX) {
            let queue = self.queue_mut(source);
            // Its own limit is that of the items that it moves.
            let mut round = Round::of(usize::MAX);
            let next = queue.map(|queue| queue.take_oldest(now, &mut round));
            let (item, due_ms) = match next.transpose() {
                Ok(Some((Next::Item(item), due_ms))) => (item, due_ms),
                Ok(_) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            match self.add_whole(target, &item, due_ms, now) {
                Ok(()) => moved.push((item, due_ms)),
                Err(error) => {
                    outcome = Err(error);
                    self.reinsert(source, [(item, due_ms)]);
                    break;
                }
            }
        }
        let synced = match self.queue_mut(target) {
            Some(target) if durable && !moved.is_empty() => target.sync(),
            _ => Ok(()),
        };
        let mut count = moved.len() as u64;
        match (synced, self.queue_mut(source)) {
            (Ok(()), Some(queue)) => moved
                .iter()
                .for_each(|(item, _)| queue.record_removal(item.id, item.body.len())),
            (Err(error), _) => {
                self.reinsert(source, moved);
                (count, outcome) = (0, Err(error));
            }
            (Ok(()), None) => {}
        }
        self.after_put(target, false, now);
        self.dispatch(source, now);
        match outcome {
            Err(error) if count > 0 => Err(QueueError::Partly {
                stored: count as usize,
                cause: Box::new(error),
            }),
            outcome => outcome.map(|()| count),
        }
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
