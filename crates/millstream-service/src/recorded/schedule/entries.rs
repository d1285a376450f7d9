//! Reads a schedule, in the numbers of its announcements.

use millstream_journal::Reader;
use millstream_wire::Cause;

use super::{Announcement, Entry, Next};
use crate::error::ServiceError;

/// The next step of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Inputs and timers have new numbers; see [`Entries::announced`].
    Announced,
    /// The component was called with a record.
    Record {
        input: usize,
        sequence: u64,
        checksum: u32,
    },
    /// A timer fired.
    Timer {
        timer: usize,
        time_ns: i64,
        next: Next,
    },
}

/// A record of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub sequence: u64,
    pub checksum: u32,
}

/// Reads a schedule.
pub(crate) struct Entries {
    reader: Reader,
    schedule: String,
    /// The last announcement; `None` at first.
    announced: Option<Announcement>,
    /// Whether the announcement of the first entries may have been pruned.
    is_pruned: bool,
}

impl Entries {
    pub(super) fn new(reader: Reader, schedule: String, is_pruned: bool) -> Self {
        Self {
            reader,
            schedule,
            announced: None,
            is_pruned,
        }
    }

    /// The announcement before the last step.
    pub fn announced(&self) -> Option<&Announcement> {
        self.announced.as_ref()
    }

    /// The next step, and the record that holds it.
    pub fn next(&mut self) -> Result<Option<(EntryId, Step)>, ServiceError> {
        while self.is_pruned && self.announced.is_none() {
            match self.reader.peek()? {
                Some(entry) if matches!(Announcement::from_bytes(entry.body), Ok(None)) => {
                    self.reader.next()?;
                }
                _ => break,
            }
        }
        let Some(record) = self.reader.next()? else {
            return Ok(None);
        };
        let sequence = record.sequence;
        let id = EntryId {
            sequence,
            checksum: record.checksum(),
        };
        let fault = |cause: Cause| ServiceError::Input {
            journal: self.schedule.clone(),
            sequence,
            cause,
        };
        if let Some(found) = Announcement::from_bytes(record.body).map_err(fault)? {
            self.announced = Some(found);
            return Ok(Some((id, Step::Announced)));
        }
        if self.announced.is_none() {
            return Err(fault("no announcement says what its numbers mean".into()));
        }
        let entry = Entry::unpack(record.body).map_err(|error| fault(error.into()))?;
        let step = match entry {
            Entry::Record {
                input,
                sequence,
                checksum,
            } => Step::Record {
                input: input as usize,
                sequence,
                checksum,
            },
            Entry::Timer {
                timer,
                time_ns,
                next,
            } => Step::Timer {
                timer: timer as usize,
                time_ns,
                next,
            },
        };
        Ok(Some((id, step)))
    }
}
