//! The log of a queue whose changes are written for followers too.

use std::sync::Arc;

use millstream_journal::Journal;

use super::change::Change;
use super::changes::SharedChanges;
use crate::error::Cause;
use crate::storage::{JournalLog, JournalSyncing, Log, Origin, Syncing};

/// The log of a queue; its changes are written to those of the server, if these are kept.
#[derive(Debug)]
pub struct ReplicatedLog {
    log: JournalLog,
    recorder: Option<Recorder>,
}

/// Writes the changes of a log.
struct Recorder {
    name: Arc<str>,
    changes: SharedChanges,
    /// Whether the changes have this queue.
    is_known: bool,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Recorder({})", self.name)
    }
}

/// Syncs the log of a queue, and the changes.
#[derive(Clone)]
pub struct ReplicatedSyncing {
    log: JournalSyncing,
    changes: Option<ChangesSyncing>,
}

impl Syncing for ReplicatedSyncing {
    fn sync(&self) -> Result<(), Cause> {
        if let Some(changes) = &self.changes {
            changes.sync()?;
        }
        self.log.sync()
    }
}

/// Syncs what the changes had when this was made. The handles of many logs share one sync, also while others write.
#[derive(Clone)]
struct ChangesSyncing {
    journal: Journal,
    /// The number of the next change; `None` where that is not known.
    next: Option<u64>,
}

impl ChangesSyncing {
    fn of(changes: &SharedChanges) -> Self {
        let journal = changes.lock().journal().clone();
        ChangesSyncing {
            next: journal.next().ok(),
            journal,
        }
    }

    fn sync(&self) -> Result<(), Cause> {
        if self.next.is_none_or(|next| self.journal.durable() < next) {
            self.journal.sync()?;
        }
        Ok(())
    }
}

impl Recorder {
    /// Makes the log of a queue that is new, and records that.
    #[cold]
    fn create(&mut self, log: &mut JournalLog) -> Result<(), Cause> {
        let name = &*self.name;
        let change = |origin| Change::Queue {
            name,
            origin,
            first: 0,
            of_snapshot: false,
        };
        let length = change(Origin::default()).length();
        let create = || {
            log.create()?;
            log.origin()
        };
        self.changes
            .lock()
            .write_after(length, create, |origin| change(*origin))?;
        self.is_known = true;
        Ok(())
    }

    fn append(
        &mut self,
        log: &mut JournalLog,
        record: &[u8],
        append: impl FnOnce(&mut JournalLog, &[u8]) -> Result<u64, Cause>,
    ) -> Result<u64, Cause> {
        if !self.is_known {
            self.create(log)?;
        }
        let name = &*self.name;
        let change = |position| Change::Record {
            name,
            position,
            record,
            of_snapshot: false,
        };
        let length = change(0).length();
        let append = || append(log, record);
        let written = self
            .changes
            .lock()
            .write_after(length, append, |position| change(*position));
        written.map(|(_, position)| position)
    }
}

impl ReplicatedLog {
    /// A log whose changes are not written.
    pub(super) fn alone(log: JournalLog) -> Self {
        ReplicatedLog {
            log,
            recorder: None,
        }
    }

    /// A log whose changes are written to `changes`.
    pub(super) fn recorded(
        log: JournalLog,
        name: &str,
        changes: SharedChanges,
        is_known: bool,
    ) -> Self {
        let recorder = Recorder {
            name: name.into(),
            changes,
            is_known,
        };
        ReplicatedLog {
            log,
            recorder: Some(recorder),
        }
    }

    /// The log itself.
    pub(crate) fn own(&mut self) -> &mut JournalLog {
        &mut self.log
    }
}

impl Log for ReplicatedLog {
    type Syncing = ReplicatedSyncing;

    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<u64, Cause> {
        match &mut self.recorder {
            None => self.log.append(record),
            Some(recorder) => recorder.append(&mut self.log, record, JournalLog::append),
        }
    }

    fn append_reserved(&mut self, record: &[u8]) -> Result<u64, Cause> {
        match &mut self.recorder {
            None => self.log.append_reserved(record),
            Some(recorder) => recorder.append(&mut self.log, record, JournalLog::append_reserved),
        }
    }

    fn tombstone(&mut self, position: u64) -> Result<(), Cause> {
        let Some(recorder) = &self.recorder else {
            return self.log.tombstone(position);
        };
        let name = &*recorder.name;
        let change = Change::Tombstone { name, position };
        let put = || self.log.tombstone(position);
        recorder
            .changes
            .lock()
            .write_after(change.length(), put, |()| change)?;
        Ok(())
    }

    fn prune(&mut self, before: u64) -> Result<(), Cause> {
        let first = self.log.first();
        self.log.prune(before)?;
        if let Some(recorder) = self.recorder.as_ref().filter(|_| self.log.first() > first) {
            let name = &*recorder.name;
            // Without room the follower keeps a little more, until the next time.
            let _room = recorder
                .changes
                .lock()
                .write(&Change::Prune { name, before });
        }
        Ok(())
    }

    fn create(&mut self) -> Result<(), Cause> {
        match &mut self.recorder {
            Some(recorder) if !recorder.is_known => recorder.create(&mut self.log),
            _ => self.log.create(),
        }
    }

    fn sync(&mut self) -> Result<(), Cause> {
        if let Some(recorder) = &self.recorder {
            ChangesSyncing::of(&recorder.changes).sync()?;
        }
        self.log.sync()
    }

    fn syncing(&self) -> ReplicatedSyncing {
        ReplicatedSyncing {
            log: self.log.syncing(),
            changes: self
                .recorder
                .as_ref()
                .map(|recorder| ChangesSyncing::of(&recorder.changes)),
        }
    }

    #[inline]
    fn read(&mut self, position: u64) -> Result<&[u8], Cause> {
        self.log.read(position)
    }

    #[inline]
    fn first(&self) -> u64 {
        self.log.first()
    }

    #[inline]
    fn next(&self) -> u64 {
        self.log.next()
    }

    #[inline]
    fn durable(&self) -> u64 {
        self.log.durable()
    }

    fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    fn is_full(&self) -> bool {
        self.log.is_full()
    }

    #[inline]
    fn was_full(&self) -> bool {
        self.log.was_full()
    }

    fn has_tombstone(&self, position: u64) -> bool {
        self.log.has_tombstone(position)
    }

    fn roll_segment(&mut self) -> Result<bool, Cause> {
        self.log.roll_segment()
    }

    fn suspend(&mut self) -> bool {
        self.log.suspend()
    }

    fn is_suspended(&self) -> bool {
        self.log.is_suspended()
    }

    /// A queue that the changes do not have yet does not exist for a follower.
    fn exists(&self) -> bool {
        let recorder = self.recorder.as_ref();
        self.log.exists() && recorder.is_none_or(|recorder| recorder.is_known)
    }

    fn begin_create(&mut self) -> bool {
        self.log.begin_create()
    }

    fn is_being_created(&self) -> bool {
        self.log.is_being_created()
    }

    fn end_restore(&mut self) {
        self.log.end_restore();
    }

    fn disk_bytes(&mut self) -> u64 {
        self.log.disk_bytes()
    }
}
