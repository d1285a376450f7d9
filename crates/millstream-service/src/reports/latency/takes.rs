//! When a service took its inputs, from its schedule.

use std::collections::HashMap;

use millstream_journal::{Error as JournalError, Journal, Options, Reader};
use millstream_wire::InputName;

use crate::error::ServiceError;
use crate::recorded::schedule::{Announcement, Entry, path_beside};

/// When a service took its inputs: the times of the entries of its schedule, read along with its outputs.
pub(super) struct Takes {
    reader: Reader,
    /// The names of the inputs in the entries.
    names: HashMap<u32, InputName>,
    started: bool,
    /// An entry that was read and not used yet: the input, its record, and when it was taken.
    next: Option<(u32, u64, u64)>,
}

impl Takes {
    /// The takes of the service that writes to `output`; nothing where it has no schedule.
    pub fn beside(output: &Journal) -> Result<Option<Self>, ServiceError> {
        let journal = match Journal::open(path_beside(&output.path()), Options::read_only()) {
            Ok(journal) => journal,
            Err(JournalError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(Self {
            reader: journal.reader()?,
            names: HashMap::new(),
            started: false,
            next: None,
        }))
    }

    /// When the record `sequence` of an input was taken, which was published and had its output at these times. Calls
    /// must follow the order of the outputs.
    pub fn of(
        &mut self,
        input: &InputName,
        sequence: u64,
        published_ns: u64,
        output_ns: u64,
    ) -> Result<Option<u64>, ServiceError> {
        if !self.started {
            self.started = true;
            self.begin(published_ns)?;
        }
        loop {
            let (number, of, taken_ns) = match self.next {
                Some(next) => next,
                None => match self.read()? {
                    Some(next) => *self.next.insert(next),
                    None => return Ok(None),
                },
            };
            if taken_ns > output_ns {
                return Ok(None);
            }
            if of == sequence
                && self
                    .names
                    .get(&number)
                    .is_some_and(|name| name.identity == input.identity)
            {
                return Ok(Some(taken_ns));
            }
            self.next = None;
        }
    }

    /// Moves to the entries of this time, and learns the names that were noted before.
    fn begin(&mut self, time_ns: u64) -> Result<(), ServiceError> {
        self.reader.seek_time(time_ns)?;
        let from = self.reader.position();
        // Each start of the service announces its inputs.
        let mut at = from;
        while at > 0 && self.names.is_empty() {
            at = at.saturating_sub(1_024);
            if self.reader.seek(at).is_err() {
                break; // pruned
            }
            while self.reader.position() < from {
                self.read()?;
            }
        }
        Ok(self.reader.seek(from)?)
    }

    /// The next entry of a record; names that are noted are learned.
    fn read(&mut self) -> Result<Option<(u32, u64, u64)>, ServiceError> {
        while let Some(record) = self.reader.next()? {
            let time_ns = record.time_ns;
            if let Ok(Some(announcement)) = Announcement::from_bytes(record.body) {
                let inputs = announcement.inputs.into_iter().map(|place| place.input);
                self.names = (0..).zip(inputs).collect();
            } else if let Ok(Entry::Record {
                input, sequence, ..
            }) = Entry::unpack(record.body)
            {
                return Ok(Some((input, sequence, time_ns)));
            }
        }
        Ok(None)
    }
}
