//! Reads a schedule, also those of earlier versions, in the numbers of its announcements.

use millstream_journal::Reader;
use millstream_wire::{Cause, InputName, Note, Record};

use super::{Announcement, Entry, Legacy};
use crate::error::ServiceError;

/// The next step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Inputs and timers have new numbers; see [`Entries::inputs`], [`Entries::timers`] and [`Entries::announced`].
    Announced,
    /// The component was called with a record.
    Record { input: usize, sequence: u64 },
    /// A timer fired.
    Timer { timer: usize, time_ns: i64 },
}

/// Reads a schedule.
pub(crate) struct Entries {
    reader: Reader,
    schedule: String,
    legacy: Legacy,
    /// The last announcement; that of an earlier version has the inputs only.
    announcement: Announcement,
    is_old: bool,
    /// Whether the inputs of an earlier version have changed since the last step.
    renamed: bool,
    /// An entry that was read before its announcement was returned.
    held: Option<(u64, u64, Entry)>,
}

impl Entries {
    pub(super) fn new(reader: Reader, schedule: String, legacy: Legacy) -> Self {
        Self {
            reader,
            schedule,
            legacy,
            announcement: Announcement::default(),
            is_old: true,
            renamed: false,
            held: None,
        }
    }

    /// The inputs by their numbers.
    pub fn inputs(&self) -> Vec<InputName> {
        let places = self.announcement.inputs.iter();
        places.map(|place| place.input.clone()).collect()
    }

    /// The input of a number.
    pub fn input(&self, number: usize) -> Option<&InputName> {
        let place = self.announcement.inputs.get(number);
        place.map(|place| &place.input)
    }

    /// The names of the timers by their numbers. `None` where an earlier version recorded numbers whose names are unknown.
    pub fn timers(&self) -> Option<&[String]> {
        match self.is_old {
            true => self.legacy.timers.as_deref(),
            false => Some(&self.announcement.timers),
        }
    }

    /// The positions of the service at the last announcement, which earlier versions do not record.
    pub fn announced(&self) -> Option<&Announcement> {
        (!self.is_old).then_some(&self.announcement)
    }

    /// The next step: its sequence number, the time at which it was written, and its contents.
    pub fn next(&mut self) -> Result<Option<(u64, u64, Step)>, ServiceError> {
        if let Some((sequence, time_ns, entry)) = self.held.take() {
            return Ok(Some((sequence, time_ns, step(entry))));
        }
        while let Some(record) = self.reader.next()? {
            let (sequence, time_ns, body) = (record.sequence, record.time_ns, record.body);
            let fault = |cause: Cause| ServiceError::Input {
                journal: self.schedule.clone(),
                sequence,
                cause,
            };
            if let Some(found) = Announcement::from_bytes(body).map_err(fault)? {
                (self.announcement, self.is_old, self.renamed) = (found, false, false);
                return Ok(Some((sequence, time_ns, Step::Announced)));
            }
            if let Ok(Record::Note(note)) = Record::read(body) {
                let note = Note::from_bytes(note).map_err(|error| fault(error.into()))?;
                if let Note::Input { number, input } = note {
                    self.rename(number, input);
                }
                continue;
            }
            let entry = Entry::unpack(body).map_err(|error| fault(error.into()))?;
            if std::mem::take(&mut self.renamed) {
                self.held = Some((sequence, time_ns, entry));
                return Ok(Some((sequence, time_ns, Step::Announced)));
            }
            return Ok(Some((sequence, time_ns, step(entry))));
        }
        Ok(None)
    }

    /// A note of an earlier version; a new set of inputs begins with number 0.
    fn rename(&mut self, number: u32, input: InputName) {
        if number == 0 {
            self.announcement = Announcement::default();
        }
        (self.is_old, self.renamed) = (true, true);
        self.announcement.inputs.push(super::InputPosition {
            input,
            start: 0,
            next: 0,
        });
    }
}

fn step(entry: Entry) -> Step {
    match entry {
        Entry::Record { input, sequence } => Step::Record {
            input: input as usize,
            sequence,
        },
        Entry::Timer { timer, time_ns } => Step::Timer {
            timer: timer as usize,
            time_ns,
        },
    }
}
