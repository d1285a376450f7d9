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
    Record { input: usize, sequence: u64 },
    /// A timer fired.
    Timer {
        timer: usize,
        time_ns: i64,
        next: Next,
    },
}

/// Reads a schedule.
pub(crate) struct Entries {
    reader: Reader,
    schedule: String,
    /// The last announcement; `None` at first.
    announced: Option<Announcement>,
}

impl Entries {
    pub(super) fn new(reader: Reader, schedule: String) -> Self {
        Self {
            reader,
            schedule,
            announced: None,
        }
    }

    /// The announcement before the last step.
    pub fn announced(&self) -> Option<&Announcement> {
        self.announced.as_ref()
    }

    /// The next step, and its sequence number.
    pub fn next(&mut self) -> Result<Option<(u64, Step)>, ServiceError> {
        let Some(record) = self.reader.next()? else {
            return Ok(None);
        };
        let sequence = record.sequence;
        let fault = |cause: Cause| ServiceError::Input {
            journal: self.schedule.clone(),
            sequence,
            cause,
        };
        if let Some(found) = Announcement::from_bytes(record.body).map_err(fault)? {
            self.announced = Some(found);
            return Ok(Some((sequence, Step::Announced)));
        }
        if self.announced.is_none() {
            return Err(fault("no announcement says what its numbers mean".into()));
        }
        let entry = Entry::unpack(record.body).map_err(|error| fault(error.into()))?;
        let step = match entry {
            Entry::Record { input, sequence } => Step::Record {
                input: input as usize,
                sequence,
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
        Ok(Some((sequence, step)))
    }
}
