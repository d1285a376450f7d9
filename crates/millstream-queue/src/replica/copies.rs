//! The queues of a follower: what its copy of the changes says.
//!
//! The invariant: each log has a prefix of the records that the changes have of its queue. So a follower that is killed
//! resumes where it was, and what does not fit, as after a loss of power, is made anew from the last snapshot.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::{Error as Fault, Journal, Options, Reader, Wait};

use super::change::Change;
use super::changes;
use super::replay::{replay, write_missing};
use super::survey::Survey;
use crate::error::Cause;
use crate::storage::{CHANGES, JournalLog, JournalStorage, Log, Origin, Storage};

/// A file which says that the logs of queues may have what the changes do not have.
const REBUILD: &str = ".rebuild";
/// The number of logs that are open at a time.
const OPEN_LOGS: usize = 192;
/// The number of changes after which a follower looks whether it should stop.
const AT_ONCE: usize = 10_000;

/// The queues in a directory whose changes come from another machine.
pub(super) struct Copies {
    storage: JournalStorage,
    journal: Journal,
    reader: Reader,
    logs: HashMap<String, JournalLog, foldhash::fast::RandomState>,
    /// Whether the logs have all that stands before the reader.
    is_complete: bool,
    /// Where the snapshot begins that the reader is in.
    writing: Option<u64>,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Copies({})", self.storage.folder().display())
    }
}

impl Copies {
    /// The queues in the directory of `storage`; `None` while it has no changes.
    ///
    /// # Errors
    /// The changes or a queue cannot be read or written.
    pub(super) fn open(storage: JournalStorage) -> Result<Option<Self>, Cause> {
        let options = Options {
            create: false,
            ..Options::default()
        };
        let journal = match Journal::open(storage.folder().join(CHANGES), options) {
            Err(Fault::NotFound { .. }) => return Ok(None),
            opened => opened?,
        };
        let mut copies = Copies {
            reader: journal.reader()?,
            storage,
            journal,
            logs: HashMap::default(),
            is_complete: false,
            writing: None,
        };
        let marker = copies.storage.folder().join(REBUILD);
        if marker.exists() {
            for name in copies.storage.names()? {
                copies.storage.remove(&name)?;
            }
        }
        copies.level()?;
        if marker.exists() {
            std::fs::remove_file(marker)?;
        }
        Ok(Some(copies))
    }

    /// Whether the queues are complete: the first snapshot has come.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Brings all logs to what the changes say. Without a complete snapshot there is nothing to be done yet.
    fn level(&mut self) -> Result<(), Cause> {
        let Some(survey) = Survey::of(&self.journal)? else {
            return changes::check_snapshot_was_none(&self.journal);
        };
        self.logs.clear();
        for name in self.storage.names()? {
            if !survey.queues.contains_key(&name) {
                self.storage.remove(&name)?;
            }
        }
        for (name, known) in &survey.queues {
            let opened = self.storage.open(name);
            let fits = match opened {
                Ok(mut log) if log.exists() => {
                    let fits = log.lineage()? == known.origin.lineage
                        && (known.first..=known.next).contains(&log.next());
                    log.end_restore();
                    fits.then(|| self.logs.insert(name.clone(), log)).is_some()
                }
                _ => false,
            };
            if !fits {
                self.make(name, known.origin, known.first)?;
            }
            self.limit_open_logs();
        }
        let journal = self.journal.clone();
        replay(&journal, &survey, |name, change| self.write(name, change))?;
        for (name, known) in &survey.queues {
            let next = self.logs.get(name).map_or(0, Log::next);
            if next != known.next {
                return Err(format!(
                    "queue \"{name}\" ends at record {next}, and its changes at {}",
                    known.next
                )
                .into());
            }
        }
        self.reader.seek(survey.end)?;
        changes::prune(&self.journal, survey.begin)?;
        (self.is_complete, self.writing) = (true, None);
        Ok(())
    }

    /// Makes the log of a queue, in place of the one that is there.
    fn make(&mut self, name: &str, origin: Origin, first: u64) -> Result<(), Cause> {
        self.logs.remove(name);
        self.storage.remove(name)?;
        let log = self.storage.create_copy(name, origin, first)?;
        self.logs.insert(name.to_owned(), log);
        Ok(())
    }

    fn limit_open_logs(&mut self) {
        if self.storage.open_logs() > OPEN_LOGS {
            for log in self.logs.values_mut() {
                log.suspend();
            }
        }
    }

    /// Writes what the log of a queue lacks.
    fn write(&mut self, name: &str, change: &Change<'_>) -> Result<(), Cause> {
        let log = self.logs.get_mut(name);
        let log =
            log.ok_or_else(|| format!("there is no queue \"{name}\", of which there is a change"))?;
        write_missing(log, change)?;
        self.limit_open_logs();
        Ok(())
    }

    /// Applies changes that have come, waiting for one at most for `limit`. Returns the number of changes.
    ///
    /// # Errors
    /// The changes or a queue cannot be read or written.
    pub(super) fn follow(&mut self, limit: Duration) -> Result<usize, Cause> {
        if !self.reader.wait(Wait::Block, Some(limit))? {
            return Ok(0);
        }
        let mut body = Vec::new();
        for count in 0..AT_ONCE {
            let Some(record) = self.reader.next()? else {
                return Ok(count);
            };
            let number = record.sequence;
            body.clear();
            body.extend_from_slice(record.body);
            self.apply(&Change::read(&body)?, number)?;
        }
        Ok(AT_ONCE)
    }

    fn apply(&mut self, change: &Change<'_>, number: u64) -> Result<(), Cause> {
        match *change {
            Change::Begin => self.writing = Some(number),
            Change::End => {
                if !self.is_complete {
                    self.level()?;
                } else if let Some(begin) = self.writing.take() {
                    changes::prune(&self.journal, begin)?;
                }
            }
            _ if !self.is_complete => {}
            Change::Queue {
                of_snapshot: true, ..
            }
            | Change::Record {
                of_snapshot: true, ..
            }
            | Change::Beat => {}
            Change::Queue {
                name,
                origin,
                first,
                ..
            } => self.make(name, origin, first)?,
            Change::Remove { name } => {
                self.logs.remove(name);
                self.storage.remove(name)?;
            }
            Change::Record { name, .. }
            | Change::Tombstone { name, .. }
            | Change::Prune { name, .. } => self.write(name, change)?,
        }
        Ok(())
    }

    /// Makes all queues durable.
    ///
    /// # Errors
    /// A sync failed.
    pub(super) fn sync(&mut self) -> Result<(), Cause> {
        for log in self.logs.values_mut() {
            log.sync()?;
        }
        Ok(())
    }
}

/// The changes of the queues in a directory.
///
/// # Errors
/// There are none.
pub fn changes_of(folder: &Path) -> Result<PathBuf, Cause> {
    let changes = folder.join(CHANGES);
    if changes.is_dir() {
        Ok(changes)
    } else {
        Err("no second machine has followed these queues, and they are no copy: there is no .changes".into())
    }
}

/// Makes the changes of the queues in a directory, if there are none. Returns the number of this copy of them.
///
/// # Errors
/// The directory is in use or cannot be written.
pub(crate) fn make_changes(folder: &Path, item_bytes: usize) -> Result<u64, Cause> {
    let storage = JournalStorage::open_followed(folder, item_bytes)?;
    Ok(storage.open_changes()?.identity()?.own)
}

/// Notes that the queues in a directory must be made anew from their changes, which will lose some of theirs: those of
/// an old leader.
///
/// # Errors
/// The directory is in use or cannot be written.
pub fn rebuild_from_changes(folder: &Path) -> Result<(), Cause> {
    let _lock = JournalStorage::open_followed(folder, 0)?;
    std::fs::File::create(folder.join(REBUILD))?.sync_all()?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// Makes the copy of the queues in a directory complete and durable, before it is promoted. Returns the directory of
/// its changes.
///
/// # Errors
/// Its follower runs; the first snapshot has not come; the changes or a queue cannot be read or written.
pub fn complete(folder: &Path) -> Result<PathBuf, Cause> {
    let changes = changes_of(folder)?;
    let storage = JournalStorage::open_copy(folder)?;
    let mut copies = Copies::open(storage)?.ok_or("these queues are no copy: .changes is empty")?;
    if !copies.is_complete() {
        return Err(
            "this copy is not complete: the first snapshot of the queues has not come yet".into(),
        );
    }
    copies.sync()?;
    Ok(changes)
}
