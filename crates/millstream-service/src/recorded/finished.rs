//! The inputs whose effects are all recorded: those before the last announcement.

use millstream_journal::{Bookmark, Error as JournalError, Journal};

use crate::error::ServiceError;
use crate::recorded::schedule::{Announcement, Schedule};

/// How many records of the schedule are read at once, from its end to its start.
const RECORDS: u64 = 4096;

/// The last announcement of which no output has been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Its number in the schedule.
    pub announcement: u64,
    /// The outputs before this one are effects of inputs before it.
    pub outputs: u64,
}

/// Whether the outputs before a position are there.
pub(crate) fn holds(output: &Journal, outputs: Bookmark) -> Result<bool, ServiceError> {
    match output.confirm(outputs) {
        Ok(()) => Ok(true),
        Err(JournalError::Lost { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Looks for the last announcement that is not ahead of the outputs: a loss of power may have removed some, and others
/// may have their numbers.
pub(crate) fn find(
    schedule: &Schedule,
    output: &Journal,
) -> Result<Option<Finished>, ServiceError> {
    let first = schedule.journal.first()?;
    let mut end = schedule.journal.next()?;
    let mut reader = schedule.journal.reader()?;
    let mut found = None;
    while found.is_none() && end > first {
        let start = end.saturating_sub(RECORDS).max(first);
        reader.seek(start)?;
        while reader.position() < end
            && let Some(record) = reader.next()?
        {
            if let Ok(Some(announced)) = Announcement::from_bytes(record.body)
                && holds(output, announced.outputs)?
            {
                found = Some(Finished {
                    announcement: record.sequence,
                    outputs: announced.outputs.next,
                });
            }
        }
        end = start;
    }
    Ok(found)
}
