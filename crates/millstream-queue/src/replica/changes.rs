//! The journal of the changes of all queues, which followers copy.
//!
//! A change is written after the log of the queue has it. So room for it is claimed before: without room nothing is
//! done. A failure in between leaves the log ahead: then nothing is done any more, and the next start writes what is
//! missing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_journal::{CursorMode, Error as Fault, Journal, Retention, Writer, chain};

use super::change::Change;
use super::survey::Survey;
use crate::error::Cause;
use crate::storage::{JournalLog, JournalStorage, Log};

/// The cursor at the snapshot that is needed.
const CURSOR: &str = "snapshot";
/// A new snapshot is not made for less than this.
const SNAPSHOT_BYTES_MIN: u64 = 64 << 20;

/// The changes, shared by the logs of all queues. No operation leaves them incomplete, see [`SharedChanges::lock`].
#[derive(Clone)]
pub(crate) struct SharedChanges(Arc<Mutex<Changes>>);

/// The journal of changes, open to write.
pub(crate) struct Changes {
    journal: Journal,
    writer: Writer,
    failed: Option<String>,
    /// Where the last complete snapshot begins.
    begin: Option<u64>,
    /// Where the snapshot begins that is being written.
    writing: Option<u64>,
    /// The bytes that were written since the last snapshot was complete, and those that it took.
    since_bytes: u64,
    snapshot_bytes: u64,
    snapshot_bytes_min: u64,
}

impl SharedChanges {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the changes in a directory of queues, and makes them if there are none. Returns with them what they are
    /// known to have of the queues, unless they are new: without a complete snapshot that is nothing, and followers get
    /// all again.
    pub(crate) fn open(storage: &JournalStorage) -> Result<(Self, Option<Survey>), Cause> {
        let journal = storage.open_changes()?;
        check_leads(&journal)?;
        let writer = journal.writer()?;
        let survey = Survey::of(&journal)?;
        let is_new = journal.next()? == 0;
        let changes = Changes {
            failed: None,
            begin: survey.as_ref().map(|survey| survey.begin),
            writing: None,
            since_bytes: survey.as_ref().map_or(0, |survey| survey.bytes),
            snapshot_bytes: survey.as_ref().map_or(0, |survey| survey.snapshot_bytes),
            snapshot_bytes_min: SNAPSHOT_BYTES_MIN,
            writer,
            journal,
        };
        let known = survey.or_else(|| (!is_new).then(Survey::default));
        Ok((SharedChanges(Arc::new(Mutex::new(changes))), known))
    }
}

/// These queues are not those of a copy, and no copy of them was promoted.
fn check_leads(journal: &Journal) -> Result<(), Cause> {
    let leadership = journal.leadership()?;
    if let Some(by) = leadership.superseded_by {
        return Err(format!(
            "a copy of these queues was promoted (term {by}): `millstream queue rejoin` makes them a copy of that one"
        )
        .into());
    }
    if leadership.is_copy {
        return Err(
            "these queues are a copy, which a follower keeps: `millstream queue promote` makes them the queues"
                .into(),
        );
    }
    Ok(())
}

impl Changes {
    /// The journal, for those that serve or follow it.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Why no change can be written any more.
    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Writes a change.
    ///
    /// # Errors
    /// There is no room; another machine has taken over; an earlier write has failed.
    pub(crate) fn write(&mut self, change: &Change<'_>) -> Result<u64, Cause> {
        self.write_after(change.length(), || Ok(()), |()| *change)
            .map(|(number, ())| number)
    }

    /// Writes a record that a log has, with its tombstone. Returns the length of the record.
    ///
    /// # Errors
    /// As for [`write`](Self::write); the record cannot be read.
    pub(crate) fn write_record(
        &mut self,
        name: &str,
        log: &mut JournalLog,
        position: u64,
        of_snapshot: bool,
    ) -> Result<usize, Cause> {
        let record = log.read(position)?;
        let length = record.len();
        self.write(&Change::Record {
            name,
            position,
            record,
            of_snapshot,
        })?;
        if log.has_tombstone(position) {
            self.write(&Change::Tombstone { name, position })?;
        }
        Ok(length)
    }

    /// Claims room for a change of this length, does `act`, and writes the change that follows from it. Returns the
    /// number of the change, and what `act` has returned.
    ///
    /// # Errors
    /// As for [`write`](Self::write), before `act` has done anything; that of `act`; that of the write, after which
    /// nothing can be written.
    pub(crate) fn write_after<'a, T>(
        &mut self,
        length: usize,
        act: impl FnOnce() -> Result<T, Cause>,
        change: impl FnOnce(&T) -> Change<'a>,
    ) -> Result<(u64, T), Cause> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone().into());
        }
        let mut claim = match self.writer.claim(length) {
            Err(Fault::DiskFull { .. }) => {
                // What all followers have is written again, when there is room for a snapshot.
                (self.begin, self.writing) = (None, None);
                prune(&self.journal, self.journal.next()?)?;
                self.writer.claim(length)?
            }
            claim => claim?,
        };
        let value = act()?;
        change(&value).write(&mut claim[..length]);
        self.since_bytes += length as u64;
        match claim.commit(length) {
            Ok(number) => Ok((number, value)),
            Err(fault) => {
                self.failed = Some(chain(&fault).to_string());
                Err(fault.into())
            }
        }
    }

    /// Whether a snapshot should be written: there is none, or what was written since the last one is more than what it
    /// took.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let enough = self.snapshot_bytes.max(self.snapshot_bytes_min);
        self.writing.is_none() && (self.begin.is_none() || self.since_bytes > enough)
    }

    /// Whether there is a complete snapshot.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.begin.is_some()
    }

    /// Begins a snapshot.
    pub(crate) fn begin_snapshot(&mut self) -> Result<(), Cause> {
        self.since_bytes = 0;
        self.writing = Some(self.write(&Change::Begin)?);
        Ok(())
    }

    /// Gives up a snapshot. Another one is due when as much was written again as the last one took.
    pub(crate) fn give_up_snapshot(&mut self) {
        self.writing = None;
    }

    /// Whether all is there still that was written of a snapshot.
    pub(crate) fn check_snapshot(&self) -> Result<u64, Cause> {
        self.writing
            .ok_or_else(|| "the disk is full: what was written of it was removed".into())
    }

    /// Ends a snapshot. Returns where it begins: what is before that can be [removed](prune).
    pub(crate) fn end_snapshot(&mut self) -> Result<u64, Cause> {
        self.check_snapshot()?;
        self.write(&Change::End)?;
        let begin = self.check_snapshot()?;
        self.writing = None;
        self.snapshot_bytes = std::mem::take(&mut self.since_bytes);
        self.begin = Some(begin);
        Ok(begin)
    }
}

/// Removes the changes before a snapshot, as far as no follower needs them. It syncs: not on a thread that serves
/// clients.
pub(crate) fn prune(journal: &Journal, begin: u64) -> Result<(), Fault> {
    // Before it is durable, an older snapshot is needed.
    journal.sync()?;
    journal.cursor(CURSOR, CursorMode::Shared)?.set(begin)?;
    journal.prune(&Retention {
        keep_for_cursors: true,
        ..Retention::default()
    })?;
    Ok(())
}

/// An error if these changes have no snapshot, and had one: something has removed it.
pub(super) fn check_snapshot_was_none(journal: &Journal) -> Result<(), Cause> {
    let had_one = journal
        .cursors()?
        .iter()
        .any(|cursor| cursor.name == CURSOR);
    if had_one {
        Err(format!(
            "{}: the changes have no snapshot, which something has removed: delete the directory of this copy, and follow into a new one",
            journal.path().display()
        )
        .into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
impl SharedChanges {
    /// Lets snapshots be due after so few bytes.
    pub(super) fn snapshot_after(&self, bytes: u64) {
        self.lock().snapshot_bytes_min = bytes;
    }
}
