//! Snapshots for followers: all records of all queues are written to the changes, some in each round.

use std::sync::Arc;

use super::Broker;
use crate::error::Cause;
use crate::moment::Moment;
use crate::queue::Queue;
use crate::replica::{Change, Changes, ReplicatedLog, ReplicatedStorage};
use crate::round::{self, Round};
use crate::storage::{Log, Origin};

/// A snapshot that is being written.
pub(crate) struct Snapshot {
    names: std::vec::IntoIter<Arc<str>>,
    part: Option<Part>,
}

/// The queue that is being written.
struct Part {
    name: Arc<str>,
    origin: Origin,
    /// The next record, and the one that came when this began: what is later was recorded when it was appended.
    from: u64,
    until: u64,
}

impl Broker<ReplicatedStorage> {
    /// Begins a snapshot, if one is due. While a queue is closed there is none: a follower may have what is damaged
    /// here.
    pub(crate) fn begin_snapshot(&mut self) -> Result<Option<Snapshot>, Cause> {
        let Some(shared) = self.storage.changes().cloned() else {
            return Ok(None);
        };
        let mut changes = shared.lock();
        let is_postponed = changes.has_snapshot() && !self.closed.is_empty();
        if is_postponed || !changes.is_snapshot_due() {
            return Ok(None);
        }
        changes.begin_snapshot()?;
        Ok(Some(Snapshot {
            names: self.names().into_iter(),
            part: None,
        }))
    }

    /// Writes a round of a snapshot. Returns where it begins when it is complete.
    ///
    /// # Errors
    /// A queue that cannot be read, or there is no room: the snapshot is given up.
    pub(crate) fn write_snapshot(
        &mut self,
        snapshot: &mut Snapshot,
        now: Moment,
    ) -> Result<Option<u64>, Cause> {
        let shared = self.storage.changes().cloned();
        let shared = shared.ok_or("there are no changes")?;
        shared.lock().check_snapshot()?;
        let mut round = self.round();
        while round.has_room() {
            if snapshot.part.is_none() {
                let Some(name) = snapshot.names.next() else {
                    return shared.lock().end_snapshot().map(Some);
                };
                round.took(round::QUEUE);
                snapshot.part = self.begin_part(name, &mut shared.lock())?;
            }
            if let Some(part) = &mut snapshot.part
                && self.write_part(part, &mut shared.lock(), &mut round)?
            {
                snapshot.part = None;
                self.limit_open_logs(now);
            }
        }
        Ok(None)
    }

    /// Whether there is a complete snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        let changes = self.storage.changes();
        changes.is_some_and(|changes| changes.lock().has_snapshot())
    }

    /// Begins a snapshot if there is none that is complete.
    pub(crate) fn begin_first_snapshot(&mut self) -> Result<Option<Snapshot>, Cause> {
        if self.has_snapshot() {
            Ok(None)
        } else {
            self.begin_snapshot()
        }
    }

    /// The journal of the changes.
    #[cfg(test)]
    pub(crate) fn changes_journal(&self) -> millstream_journal::Journal {
        let changes = self.storage.changes().map(|changes| changes.lock());
        changes.expect("they are written").journal().clone()
    }

    /// Gives up a snapshot.
    pub(crate) fn give_up_snapshot(&mut self) {
        if let Some(changes) = self.storage.changes() {
            changes.lock().give_up_snapshot();
        }
    }

    /// Writes a change for a follower to acknowledge: with it the follower has all that was done before, and follows
    /// now.
    ///
    /// # Errors
    /// There is no room; nothing can be written any more.
    pub(crate) fn write_beat(&mut self) -> Result<u64, Cause> {
        let changes = self.storage.changes().ok_or("there are no changes")?;
        changes.lock().write(&Change::Beat)
    }

    fn log_of(&mut self, name: &str) -> Option<&mut ReplicatedLog> {
        let id = *self.names.get(name)?;
        self.queue_mut(id).map(Queue::log)
    }

    /// Records a queue; `None` for one that has nothing on disk.
    fn begin_part(&mut self, name: Arc<str>, changes: &mut Changes) -> Result<Option<Part>, Cause> {
        let Some(log) = self.log_of(&name).filter(|log| log.exists()) else {
            return Ok(None);
        };
        let part = Part {
            origin: log.own().origin()?,
            from: log.first(),
            until: log.next(),
            name,
        };
        part.record(changes)?;
        Ok(Some(part))
    }

    /// Writes records of a queue. Returns whether it has no more.
    fn write_part(
        &mut self,
        part: &mut Part,
        changes: &mut Changes,
        round: &mut Round,
    ) -> Result<bool, Cause> {
        let Some(log) = self.log_of(&part.name) else {
            return Ok(true);
        };
        if !log.exists() || log.own().lineage()? != part.origin.lineage {
            // It was deleted meanwhile.
            return Ok(true);
        }
        if log.first() > part.from {
            // What was to come is not needed any more: the queue begins later.
            part.from = log.first();
            part.until = log.next();
            part.record(changes)?;
        }
        while part.from < part.until {
            if !round.has_room() {
                return Ok(false);
            }
            let length = changes.write_record(&part.name, log.own(), part.from, true)?;
            round.took_item(length);
            part.from += 1;
        }
        Ok(true)
    }
}

impl Part {
    fn record(&self, changes: &mut Changes) -> Result<(), Cause> {
        changes.write(&Change::Queue {
            name: &self.name,
            origin: self.origin,
            first: self.from,
            of_snapshot: true,
        })?;
        Ok(())
    }
}
