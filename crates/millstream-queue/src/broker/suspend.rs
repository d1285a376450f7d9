//! Suspending queues that are not used: their logs are closed, so that many queues need few descriptors.
//!
//! The invariant: after each request at most `open_logs` logs are open, except for those that are being synced.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use super::Broker;
use super::connection::QueueId;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::queue::Queue;
use crate::round::{self, Round};
use crate::storage::Storage;

/// The number of queues that are closed at a time.
const CLOSE_THREADS: usize = 16;
/// The number of logs that are closed at most beyond those that must be.
const CLOSED_AHEAD: usize = 16;

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // No operation leaves it incomplete.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Storage> Broker<S> {
    /// Suspends an unused queue, or forgets it if it has never had an item. One with work that is not done needs its
    /// log.
    pub(super) fn suspend_if_due(&mut self, slot: u32, now: Moment, round: &mut Round) {
        let entry = &mut self.slots[slot as usize];
        let Some(queue) = entry.queue.as_mut() else {
            return;
        };
        let is_due = queue
            .suspend_due()
            .is_some_and(|due_us| due_us <= now.steady_us);
        if !is_due || entry.dirty || queue.is_unfinished() {
            return;
        }
        if queue.is_forgettable() {
            let name = queue.name.clone();
            return self.forget(&name);
        }
        round.took(round::LOG);
        queue.suspend(now);
        self.set_timer(slot, now);
    }

    /// Closes the least recently used logs when too many are open.
    #[cold]
    pub(super) fn close_logs(&mut self, now: Moment) {
        let mut open: Vec<(u64, usize)> = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, entry)| !entry.dirty)
            .filter_map(|(slot, entry)| Some((slot, entry.queue.as_ref()?)))
            .filter(|(_, queue)| queue.can_suspend())
            .map(|(slot, queue)| (queue.last_used_us(), slot))
            .collect();
        open.sort_unstable();
        // Closes some more, so that the search is not repeated at each request; but few, so that no request waits long
        // for them.
        let too_many = self
            .storage
            .open_logs()
            .saturating_sub(self.limits.open_logs);
        let count = too_many + (self.limits.open_logs / 8).min(CLOSED_AHEAD);
        for (_, slot) in open.into_iter().take(count) {
            if let Some(queue) = self.slots[slot].queue.as_mut() {
                queue.suspend(now);
            }
        }
    }

    /// Called when the log of a queue may have been opened.
    #[inline]
    pub(super) fn limit_open_logs(&mut self, now: Moment) {
        if self.storage.open_logs() > self.limits.open_logs {
            self.close_logs(now);
        }
    }

    /// Makes everything durable, whatever the policies are, and closes all queues: several at a time, so that their
    /// syncs share what the file system does for one.
    ///
    /// # Errors
    /// A sync failed; the other queues are durable.
    pub(crate) fn close(&mut self) -> Result<(), QueueError>
    where
        S::Log: Send,
    {
        let queues = self.slots.drain(..).filter_map(|slot| slot.queue);
        let queues: Mutex<Vec<Queue<S::Log>>> = Mutex::new(queues.collect());
        let failed = Mutex::new(Ok(()));
        let next = || lock(&queues).pop();
        let close_some = || {
            while let Some(mut queue) = next() {
                if let Err(error) = queue.sync() {
                    *lock(&failed) = Err(error);
                }
            }
        };
        std::thread::scope(|scope| {
            // Where the system refuses a thread, this one does the work.
            for _ in 1..CLOSE_THREADS {
                let _refused = Builder::new().spawn_scoped(scope, close_some);
            }
            close_some();
        });
        self.names.clear();
        self.timers.clear();
        failed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a queue that has nothing on disk.
    fn forget(&mut self, name: &str) {
        if let Some(id) = self.names.remove(name) {
            self.free_slot(id, name);
        }
    }

    /// Frees the slot of a queue that was removed, and ends the waits for it.
    pub(super) fn free_slot(&mut self, id: QueueId, name: &str) {
        let slot = &mut self.slots[id.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.children.clear();
        slot.dirty = false;
        let queue = slot.queue.take();
        let timer = slot.timer.take();
        if let Some(due_us) = timer {
            self.timers.remove(&(due_us, id.slot));
        }
        self.free_slots.push(id.slot);
        if let Some(parent) = crate::name::parent(name).and_then(|parent| self.names.get(parent)) {
            self.slots[parent.slot as usize]
                .children
                .retain(|child| *child != id);
        }
        let waiters = queue.map(|mut queue| std::mem::take(&mut queue.waiters));
        for waiter in waiters.unwrap_or_default() {
            self.end_wait(waiter, super::connection::Wait::Ended);
        }
    }
}
