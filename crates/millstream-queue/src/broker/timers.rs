//! Timed work: waits end, items expire, delays end, open items are requeued, queues are synced or deleted.

use tracing::info;

use super::Broker;
use super::connection::Wait;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::queue::Queue;
use crate::round::{self, Round};
use crate::storage::Storage;

/// The wall clock may be set forward: timers that depend on it are checked this often.
const TIMER_US_MAX: u64 = 1_000_000;
const TIMER_US_MIN: u64 = 1_000;

impl<S: Storage> Broker<S> {
    /// The time at which [`run_due`](Self::run_due) must be called, on the steady clock.
    pub fn next_event(&self) -> Option<u64> {
        let wait = self.waits.first().map(|&(until_us, _)| until_us);
        let timer = self.timers.first().map(|&(due_us, _)| due_us);
        wait.into_iter()
            .chain(timer)
            .chain(self.closed.next_retry())
            .min()
    }

    /// Does a round of the work that is due. What is left is [due](Self::next_event) at once: the owner serves its
    /// connections first. Where a queue must be synced, a [commit is wanted](Self::take_commit_wanted).
    ///
    /// # Errors
    /// The storage of a queue fails; the work of the others is done.
    pub fn run_due(&mut self, now: Moment) -> Result<(), QueueError> {
        let mut round = self.round();
        while let Some(&(until_us, id)) = self
            .waits
            .first()
            .filter(|(until_us, _)| *until_us <= now.steady_us && round.has_room())
        {
            round.took(1);
            self.waits.remove(&(until_us, id));
            let Some(wait) = self.connection(id).map(|connection| connection.wait) else {
                continue;
            };
            self.remove_waiter(id, wait);
            self.end_wait(id, Wait::Ended);
        }
        for name in self.closed.due(now) {
            if !round.has_room() {
                break;
            }
            round.took(round::LOG);
            // What fails is tried again later.
            let _opened = self.create(&name, now);
        }
        let mut outcome = Ok(());
        // A queue that is not done comes after all others that are due.
        while let Some(&(due_us, slot)) = self
            .timers
            .first()
            .filter(|(due_us, _)| *due_us <= now.steady_us && round.has_room())
        {
            self.timers.remove(&(due_us, slot));
            self.slots[slot as usize].timer = None;
            round.took(round::QUEUE);
            if let Err(error) = self.run_due_of(slot, now, &mut round) {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn run_due_of(&mut self, slot: u32, now: Moment, round: &mut Round) -> Result<(), QueueError> {
        let entry = &mut self.slots[slot as usize];
        let id = super::connection::QueueId {
            slot,
            generation: entry.generation,
        };
        let Some(queue) = entry.queue.as_mut() else {
            return Ok(());
        };
        if queue
            .deletion_due()
            .is_some_and(|due_us| due_us <= now.steady_us)
        {
            let name = queue.name.clone();
            if crate::name::parent(&name).is_some() {
                info!(
                    "queue \"{name}\" was unused for its delete_empty_after: it gets no more copies"
                );
            }
            let deleted = self.delete(&name, now);
            self.counters.queue_deletes -= 1;
            self.counters.queue_expires += 1;
            return deleted.map(|_| ());
        }
        let swept = queue.sweep(now, round);
        let mut synced = Ok(());
        if queue.begin_sync_if_due(now) {
            synced = queue.sync_closed();
            self.schedule_sync(id, true, now);
        }
        while round.has_room()
            && let Some(queue) = self.queue_mut(id)
            && let Some(item) = queue.overdue(now)
        {
            round.took(1);
            queue.requeue(item, None, now);
        }
        if self.queue(id).is_some_and(Queue::is_discarding) {
            self.discard_old(id, now, round);
        }
        self.dispatch(id, now);
        self.suspend_if_due(slot, now, round);
        swept.and(synced)
    }

    /// Sets the timer of a queue. A timer that fires too early is set again.
    #[inline]
    pub(super) fn set_timer(&mut self, slot: u32, now: Moment) {
        self.limit_open_logs(now);
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let Some(queue) = entry.queue.as_ref() else {
            return;
        };
        let due_us = if queue.is_unfinished() {
            now.steady_us
        } else {
            let Some(due_us) = queue.next_event(now) else {
                return;
            };
            // Work that failed is retried soon, not at once.
            due_us.clamp(
                now.steady_us.saturating_add(TIMER_US_MIN),
                now.steady_us.saturating_add(TIMER_US_MAX),
            )
        };
        if entry.timer.is_none_or(|set| due_us < set) {
            if let Some(set) = entry.timer.replace(due_us) {
                self.timers.remove(&(set, slot));
            }
            self.timers.insert((due_us, slot));
        }
    }
}
