//! The storage of a server whose queues followers copy: the logs, and their changes.
//!
//! The logs are what counts. At a start the changes are brought to what the logs have, each queue by its own: a process
//! that dies between the two, or a loss of power, leaves one of them ahead.

use std::collections::HashMap;

use millstream_journal::chain;

use super::change::Change;
use super::changes::SharedChanges;
use super::log::ReplicatedLog;
use super::replay::{replay, write_missing};
use super::survey::{Known, Survey};
use crate::error::Cause;
use crate::storage::{JournalLog, JournalStorage, Log, Storage};

/// The queues in a directory, with their changes if followers copy them.
#[derive(Debug)]
pub struct ReplicatedStorage {
    storage: JournalStorage,
    changes: Option<SharedChanges>,
    /// What the changes had when they were opened, while queues are being opened; `None` where a snapshot comes first.
    survey: Option<Survey>,
}

impl std::fmt::Debug for SharedChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedChanges")
    }
}

impl ReplicatedStorage {
    /// These queues, whose changes are not written.
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
        storage.record_removed()?;
        Ok(storage)
    }

    pub(crate) fn changes(&self) -> Option<&SharedChanges> {
        self.changes.as_ref()
    }

    /// A queue of the changes that there is not was deleted, before that was recorded.
    fn record_removed(&mut self) -> Result<(), Cause> {
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

    /// Brings these logs and the changes together. All that a queue has is recorded, if the changes do not have that
    /// queue.
    fn level(
        &mut self,
        names: &[String],
        logs: &mut [Result<JournalLog, Cause>],
    ) -> Result<(), Cause> {
        let (Some(changes), Some(survey)) = (&self.changes, &self.survey) else {
            return Ok(());
        };
        let mut behind: HashMap<&str, (Known, &mut JournalLog)> = HashMap::new();
        for (name, log) in names.iter().zip(logs) {
            let Ok(log) = log else { continue };
            let known = survey.queues.get(name).copied();
            let Some(known) = known.filter(|_| log.exists()) else {
                if log.exists() {
                    record_all(changes, name, log)?;
                }
                continue;
            };
            if known.origin.lineage != log.lineage()? || log.first() > known.next {
                record_all(changes, name, log)?;
            } else if log.next() > known.next {
                record_from(changes, name, log, known.next)?;
            } else if log.next() < known.next {
                if log.next() < known.first {
                    // What comes between is not in the changes any more: none of it is needed.
                    self.storage.remove(name)?;
                    *log = self.storage.create_copy(name, known.origin, known.first)?;
                }
                behind.insert(name, (known, log));
            }
        }
        if behind.is_empty() {
            return Ok(());
        }
        let journal = changes.lock().journal().clone();
        replay(&journal, survey, |name, change| {
            match behind.get_mut(name) {
                Some((_, log)) => write_missing(log, change),
                None => Ok(()),
            }
        })?;
        for (name, (known, log)) in behind {
            if log.next() != known.next {
                let has = log.next();
                let next = known.next;
                return Err(format!(
                    "queue \"{name}\" ends at record {has}, and its changes at {next}"
                )
                .into());
            }
        }
        Ok(())
    }
}

/// Records all that a queue has, in place of what was recorded of it before.
fn record_all(changes: &SharedChanges, name: &str, log: &mut JournalLog) -> Result<(), Cause> {
    let origin = log.origin()?;
    let first = log.first();
    let mut recorded = changes.lock();
    recorded.write(&Change::Remove { name })?;
    recorded.write(&Change::Queue {
        name,
        origin,
        first,
        of_snapshot: false,
    })?;
    drop(recorded);
    record_from(changes, name, log, first)
}

/// Records what a queue has from a position on.
fn record_from(
    changes: &SharedChanges,
    name: &str,
    log: &mut JournalLog,
    from: u64,
) -> Result<(), Cause> {
    let mut changes = changes.lock();
    for position in from..log.next() {
        changes.write_record(name, log, position, false)?;
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
            record_all(changes, name, &mut log)?;
        }
        Ok(ReplicatedLog::recorded(
            log,
            name,
            changes.clone(),
            is_known,
        ))
    }

    fn open_many(&mut self, names: &[String]) -> Vec<Result<ReplicatedLog, Cause>> {
        let mut logs = self.storage.open_many(names);
        if let Err(cause) = self.level(names, &mut logs) {
            let text = chain(&*cause).to_string();
            return names.iter().map(|_| Err(text.clone().into())).collect();
        }
        let recorded = |(name, log): (&String, Result<JournalLog, Cause>)| {
            let log = log?;
            Ok(match &self.changes {
                None => ReplicatedLog::alone(log),
                Some(changes) => {
                    let is_known = log.exists();
                    ReplicatedLog::recorded(log, name, changes.clone(), is_known)
                }
            })
        };
        names.iter().zip(logs).map(recorded).collect()
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
