//! What a start requires of the journals: the records before each recorded position are there. A journal that has lost
//! its end would otherwise give the numbers of lost records to others, and the service would skip those.

use millstream_journal::{Bookmark, Error as JournalError, Journal};

use super::state::Runner;
use crate::error::ServiceError;
use crate::recorded::finished;
use crate::recorded::resume::Resume;
use crate::recorded::schedule::{Announcement, Step};

impl<C> Runner<C> {
    /// Checks that the record that caused the last output is there.
    pub(super) fn confirm_resume(&self, resume: &Resume) -> Result<(), ServiceError> {
        let number = resume.lineage.input as usize;
        let journal = match self.inlets.get(number) {
            Some(inlet) => Some(&inlet.journal),
            // The number after those of the inputs is that of the schedule.
            None if number == self.inlets.len() => self.schedule.as_ref().map(|it| &it.journal),
            None => None,
        };
        let bookmark = Bookmark::after(resume.lineage.sequence, resume.lineage.checksum);
        journal.map_or(Ok(()), |journal| self.confirm(journal, bookmark))
    }

    /// Checks that the record before a position is the one that the service has taken.
    pub(super) fn confirm(&self, journal: &Journal, taken: Bookmark) -> Result<(), ServiceError> {
        match journal.confirm(taken) {
            Err(JournalError::Lost { sequence, next, .. }) => {
                Err(self.lost(journal, sequence, next))
            }
            confirmed => Ok(confirmed?),
        }
    }

    /// Whether the positions of an announcement bind: the outputs before it are there. After a loss of outputs, the
    /// last one that is left says where to resume. A replay has no outputs, and follows each announcement.
    pub(super) fn binds(&self, announced: &Announcement) -> Result<bool, ServiceError> {
        let Some(output) = &self.output else {
            return Ok(true);
        };
        finished::holds(&output.journal, announced.outputs)
    }

    /// The error for a record that the service has taken and that is lost.
    pub(super) fn lost(&self, journal: &Journal, sequence: u64, next: u64) -> ServiceError {
        ServiceError::Lost {
            output: self.service_name(),
            journal: journal.path().display().to_string(),
            sequence,
            next,
            // This error is more important than one on the way to its details.
            confirmed: self.confirmed(journal).unwrap_or(0),
        }
    }

    /// The error for an order that is not recorded completely.
    pub(super) fn unordered(&self, missing: impl Into<String>) -> ServiceError {
        ServiceError::Unordered {
            output: self.service_name(),
            missing: missing.into(),
        }
    }

    /// The path of the output; in a replay, of that of the service.
    fn service_name(&self) -> String {
        let output = self.output.as_ref();
        let output = output.map(|it| it.journal.path().display().to_string());
        let schedule = || self.schedule.as_ref().map(|it| it.name.clone());
        let name = output.or_else(schedule).unwrap_or_default();
        name.trim_end_matches(".schedule").to_owned()
    }

    /// The position up to which a journal is known to hold what the service has taken.
    fn confirmed(&self, journal: &Journal) -> Result<u64, ServiceError> {
        let Some(schedule) = &self.schedule else {
            return Ok(0);
        };
        let identity = journal.lineage()?;
        let mut confirmed = 0;
        let mut reader = journal.reader()?;
        let mut entries = schedule.entries(None)?;
        while let Some((_, step)) = entries.next()? {
            let Some(announced) = entries.announced() else {
                continue;
            };
            match step {
                Step::Announced => {
                    let places = announced.inputs.iter().chain(&announced.gone);
                    for place in places.filter(|place| place.input.identity == identity) {
                        if place.next > confirmed && journal.confirm(place.bookmark()).is_ok() {
                            confirmed = place.next;
                        }
                    }
                }
                Step::Record {
                    input,
                    sequence,
                    checksum,
                } => {
                    let name = announced.inputs.get(input).map(|place| &place.input);
                    if name.is_some_and(|name| name.identity == identity)
                        && reader
                            .read(sequence)
                            .is_ok_and(|it| it.checksum() == checksum)
                    {
                        confirmed = confirmed.max(sequence + 1);
                    }
                }
                Step::Timer { .. } => {}
            }
        }
        Ok(confirmed)
    }
}
