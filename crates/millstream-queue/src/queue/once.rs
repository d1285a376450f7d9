//! Items with the id of a client: the queue takes each id once within its `dedupe`.

use super::ids::IdKey;
use super::{Log, Queue};
use crate::error::{Cause, QueueError};
use crate::moment::Moment;
use crate::storage::operation::Operation;

/// The number of ids that are written again by one inspection of the log.
const RENEW_IDS: usize = 4096;

impl<L: Log> Queue<L> {
    /// Whether an item with this id was added within the queue's `dedupe`.
    ///
    /// # Errors
    /// The queue remembers no ids, or as many as it may and not this one.
    pub(crate) fn knows(&mut self, key: IdKey, now: Moment) -> Result<bool, QueueError> {
        if self.settings.dedupe.is_none() {
            return Err(QueueError::NoDedupe {
                queue: self.name.to_string(),
            });
        }
        self.expire_ids(now.steady_us);
        let is_known = self.ids.contains(&key);
        if !is_known && self.ids.len() >= self.settings.dedupe_ids {
            return Err(QueueError::TooManyIds {
                queue: self.name.to_string(),
                ids: self.settings.dedupe_ids,
            });
        }
        Ok(is_known)
    }

    /// Forgets the ids whose time is over by `now_us`, on the steady clock.
    pub(super) fn expire_ids(&mut self, now_us: u64) {
        self.ids.expire(now_us, self.settings.dedupe);
    }

    /// The number of ids that the queue remembers.
    pub(crate) fn ids(&self) -> usize {
        self.ids.len()
    }

    /// The ids that the queue remembers, with the times of their sets.
    pub(crate) fn known_ids(&self) -> Vec<(IdKey, u64)> {
        self.ids.all().collect()
    }

    /// Remembers the ids of another queue, whose items have moved to this one.
    pub(crate) fn learn_ids(
        &mut self,
        ids: Vec<(IdKey, u64)>,
        now: Moment,
    ) -> Result<(), QueueError> {
        for (key, set_ms) in ids {
            if self.ids.contains(&key) {
                continue;
            }
            let position = self
                .append(&Operation::Known { set_ms, key })
                .map_err(|cause| self.fault(cause))?;
            self.ids.insert(key, position, set_ms, now);
        }
        self.ids.sort();
        Ok(())
    }

    /// Writes ids again that are in records before `until`, some at a time. Returns whether all are.
    pub(super) fn renew_ids(&mut self, until: u64) -> Result<bool, Cause> {
        for _ in 0..RENEW_IDS {
            let Some((position, key, set_ms)) = self.ids.first_before(until) else {
                return Ok(true);
            };
            let renewed = self.append_reserved(&Operation::Known { set_ms, key })?;
            self.ids.renewed(position, renewed);
            self.relocations.needed = self.relocations.needed.max(renewed + 1);
        }
        Ok(false)
    }
}
