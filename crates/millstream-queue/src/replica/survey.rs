//! What the changes say of the queues.
//!
//! A queue of the last complete snapshot, or one that was made later, has all records from its first one on. Those of a
//! snapshot may come after later ones, since requests are served while it is written.

use std::collections::HashMap;

use millstream_journal::{Journal, context};

use super::change::Change;
use crate::error::Cause;
use crate::storage::Origin;

/// A queue, as the changes have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub origin: Origin,
    /// The first record that the changes have.
    pub first: u64,
    /// The position after its last record.
    pub next: u64,
    /// The number of the change by which it is there: no earlier change belongs to it.
    pub since: u64,
}

/// The queues at the end of the changes.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub queues: HashMap<String, Known, foldhash::fast::RandomState>,
    /// Where the last complete snapshot begins and ends. What is of a snapshot and comes later is of one that is not
    /// complete.
    pub begin: u64,
    pub snapshot_end: u64,
    /// The number of the next change.
    pub end: u64,
    /// The size of the snapshot, and of what was written after it.
    pub snapshot_bytes: u64,
    pub bytes: u64,
}

impl Survey {
    /// Reads all changes; `None` when they have no complete snapshot.
    pub(crate) fn of(journal: &Journal) -> Result<Option<Self>, Cause> {
        let mut complete: Option<Survey> = None;
        let mut writing: Option<Survey> = None;
        let mut reader = journal.reader()?;
        let end = journal.next()?;
        while reader.position() < end {
            let Some(record) = reader.next()? else { break };
            let number = record.sequence;
            let bytes = record.body.len() as u64;
            let change = Change::read(record.body).map_err(|cause| {
                context(
                    format_args!("{}: record {number}", journal.path().display()),
                    cause,
                )
            })?;
            for survey in complete.iter_mut().chain(&mut writing) {
                survey.bytes += bytes;
            }
            match change {
                Change::Begin => {
                    writing = Some(Survey {
                        begin: number,
                        ..Survey::default()
                    });
                }
                Change::End => {
                    if let Some(mut survey) = writing.take() {
                        survey.snapshot_end = number;
                        survey.snapshot_bytes = std::mem::take(&mut survey.bytes);
                        complete = Some(survey);
                    }
                }
                _ => {
                    if let Some(survey) = &mut complete {
                        survey.note(&change, number, false);
                    }
                    if let Some(survey) = &mut writing {
                        survey.note(&change, number, true);
                    }
                }
            }
        }
        Ok(complete.map(|survey| Survey {
            end: reader.position(),
            ..survey
        }))
    }

    /// Notes a change; those of a snapshot count where it `is_written`.
    fn note(&mut self, change: &Change<'_>, number: u64, is_written: bool) {
        match *change {
            Change::Queue {
                name,
                origin,
                first,
                of_snapshot,
            } if is_written || !of_snapshot => {
                let known = Known {
                    origin,
                    first,
                    next: first,
                    since: number,
                };
                self.queues.insert(name.to_owned(), known);
            }
            Change::Record {
                name,
                position,
                of_snapshot,
                ..
            } if is_written || !of_snapshot => {
                // One of a queue that the snapshot has not come to yet comes again with that.
                if let Some(known) = self.queues.get_mut(name) {
                    known.next = known.next.max(position + 1);
                }
            }
            Change::Remove { name } => {
                self.queues.remove(name);
            }
            _ => {}
        }
    }
}
