//! The storage of a server whose queues followers copy: the logs, and their changes.
//!
//! The logs are what counts. At a start the changes are brought to what the logs have, each queue by its own: a process that dies between the two, or
//! a loss of power, leaves one of them ahead.

use std::collections::HashMap;

use super::change::Change;
use super::changes::SharedChanges;
use super::log::ReplicatedLog;
use super::replay::replay;
use super::survey::{Known, Survey};
use crate::error::Cause;
use crate::storage::{JournalLog, JournalStorage, Log, Storage};

/// The queues in a directory, with their changes if followers copy them.
#[derive(Debug)]
pub struct ReplicatedStorage {
    storage: JournalStorage,
    changes: Option<SharedChanges>,
    /// What the changes said when they were opened, of queues that were not opened yet.
    survey: Option<Survey>,
}

impl std::fmt::Debug for SharedChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedChanges")
    }
}

impl ReplicatedStorage {
    /// These queues, which nobody follows.
    pub fn alone(storage: JournalStorage) -> Self {
        ReplicatedStorage {
            storage,
            changes: None,
            survey: None,
        }
    }

    /// These queues, with their changes for followers.
    ///
    /// # Errors
    /// The changes are damaged; they are those of a copy, or a copy of them was promoted.
    pub fn followed(storage: JournalStorage) -> Result<Self, Cause> {
        let (changes, survey) = SharedChanges::open(&storage)?;
        let mut storage = ReplicatedStorage {
            storage,
            changes: Some(changes),
            survey,
        };
        storage.tell_removed()?;
        Ok(storage)
    }

    pub(crate) fn changes(&self) -> Option<&SharedChanges> {
        self.changes.as_ref()
    }

    /// A queue of the changes that there is not was deleted, before that was told.
    fn tell_removed(&mut self) -> Result<(), Cause> {
        let (Some(changes), Some(survey)) = (&self.changes, &mut self.survey) else {
            return Ok(());
        };
        let names = self.storage.names()?;
        let mut changes = changes.lock();
        for name in survey.queues.keys() {
            if names.binary_search(name).is_err() {
                changes.write(&Change::Remove { name })?;
            }
        }
        survey
            .queues
            .retain(|name, _| names.binary_search(name).is_ok());
        Ok(())
    }

    /// Without a snapshot it is not known what the changes have told, if anything. A follower that has it all gets it again.
    fn tell_again(
        &mut self,
        names: &[String],
        logs: &mut [Result<JournalLog, Cause>],
    ) -> Result<(), Cause> {
        let Some(changes) = self
            .changes
            .as_ref()
            .filter(|changes| changes.lock().has_told())
        else {
            return Ok(());
        };
        for (name, log) in names.iter().zip(logs) {
            if let Ok(log) = log
                && log.exists()
            {
                tell_all(changes, name, log)?;
            }
        }
        Ok(())
    }

    /// Brings these logs and the changes together. A queue that the changes do not know is told with all that it has.
    fn level(
        &mut self,
        names: &[String],
        logs: &mut [Result<JournalLog, Cause>],
    ) -> Result<(), Cause> {
        let Some(changes) = &self.changes else {
            return Ok(());
        };
        let Some(survey) = &mut self.survey else {
            return self.tell_again(names, logs);
        };
        let mut behind: HashMap<&str, (Known, &mut JournalLog)> = HashMap::new();
        for (name, log) in names.iter().zip(logs) {
            let Ok(log) = log else { continue };
            let known = survey.queues.get(name).copied();
            let Some(known) = known.filter(|_| log.exists()) else {
                if log.exists() {
                    tell_all(changes, name, log)?;
                }
                continue;
            };
            if known.lineage != log.lineage()? || log.first() > known.next {
                tell_all(changes, name, log)?;
            } else if log.next() > known.next {
                tell_records(changes, name, log, known.next)?;
            } else if log.next() < known.next {
                behind.insert(name, (known, log));
            }
        }
        if behind.is_empty() {
            return Ok(());
        }
        let journal = changes.lock().journal().clone();
        replay(&journal, survey, |change| {
            if let Change::Record {
                name,
                position,
                record,
                ..
            } = *change
                && let Some((_, log)) = behind.get_mut(name)
                && log.next() == position
            {
                log.append(record)?;
            }
            Ok(())
        })?;
        for (name, (known, log)) in behind {
            if log.next() != known.next {
                let (has, next) = (log.next(), known.next);
                return Err(format!(
                    "queue \"{name}\" ends at record {has}, and its changes at {next}"
                )
                .into());
            }
        }
        Ok(())
    }
}

/// Tells of a queue with all that it has, whatever was told of it before.
fn tell_all(changes: &SharedChanges, name: &str, log: &mut JournalLog) -> Result<(), Cause> {
    let (lineage, first) = (log.lineage()?, log.first());
    let mut told = changes.lock();
    told.write(&Change::Remove { name })?;
    told.write(&Change::Queue {
        name,
        lineage,
        first,
        of_snapshot: false,
    })?;
    drop(told);
    tell_records(changes, name, log, first)
}

/// Tells of the records of a queue from a position on.
fn tell_records(
    changes: &SharedChanges,
    name: &str,
    log: &mut JournalLog,
    from: u64,
) -> Result<(), Cause> {
    let mut changes = changes.lock();
    for position in from..log.next() {
        changes.write(&Change::Record {
            name,
            position,
            record: log.read(position)?,
            of_snapshot: false,
        })?;
        if log.has_tombstone(position) {
            changes.write(&Change::Tombstone { name, position })?;
        }
    }
    Ok(())
}

impl Storage for ReplicatedStorage {
    type Log = ReplicatedLog;

    fn names(&self) -> Result<Vec<String>, Cause> {
        self.storage.names()
    }

    fn open(&mut self, name: &str) -> Result<ReplicatedLog, Cause> {
        let mut log = self.storage.open(name)?;
        let Some(changes) = &self.changes else {
            return Ok(ReplicatedLog::alone(log));
        };
        self.survey = None;
        let is_known = log.exists();
        if is_known {
            // It was closed, and whatever is there now came from elsewhere.
            tell_all(changes, name, &mut log)?;
        }
        Ok(ReplicatedLog::told(log, name, changes.clone(), is_known))
    }

    fn open_many(&mut self, names: &[String]) -> Vec<Result<ReplicatedLog, Cause>> {
        let mut logs = self.storage.open_many(names);
        if let Err(cause) = self.level(names, &mut logs) {
            let text = cause.to_string();
            return names.iter().map(|_| Err(text.clone().into())).collect();
        }
        let told = |(name, log): (&String, Result<JournalLog, Cause>)| {
            let log = log?;
            Ok(match &self.changes {
                None => ReplicatedLog::alone(log),
                Some(changes) => {
                    let is_known = log.exists();
                    ReplicatedLog::told(log, name, changes.clone(), is_known)
                }
            })
        };
        names.iter().zip(logs).map(told).collect()
    }

    fn remove(&mut self, name: &str) -> Result<(), Cause> {
        let Some(changes) = &self.changes else {
            return self.storage.remove(name);
        };
        let change = Change::Remove { name };
        let remove = || self.storage.remove(name);
        changes
            .lock()
            .write_after(change.length(), remove, |()| change)?;
        Ok(())
    }

    fn open_logs(&self) -> usize {
        self.storage.open_logs()
    }
}
