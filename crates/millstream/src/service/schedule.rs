//! The order in which a service took its inputs, and when its timers fired: a journal beside the output journal.
//!
//! With one input and no timer that order is the input's own, and there is no schedule. An entry is a MessagePack array:
//! `[input, sequence]` of a record, or `[nil, timer, time in ns]`. The inputs' names are told by the same notes as elsewhere.

use std::path::PathBuf;

use millstream_journal::{Journal, Options, Reader, Writer};
use millstream_wire::{Note, Packer, Record, Unpacker, WireError};

use super::error::ServiceError;

/// What the component was called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Record { input: u32, sequence: u64 },
    Timer { timer: u32, time_ns: i64 },
}

pub(super) struct Schedule {
    pub journal: Journal,
    pub name: String,
    writer: Writer,
}

impl Schedule {
    /// Opens the schedule of the service that writes to `output`: its directory with `.schedule` behind its name.
    pub fn beside(output: &Journal) -> Result<Self, ServiceError> {
        let mut path = output.path().into_os_string();
        path.push(".schedule");
        let path = PathBuf::from(path);
        let journal = Journal::open(&path, Options::default())?;
        Ok(Self {
            name: path.display().to_string(),
            writer: journal.writer()?,
            journal,
        })
    }

    /// Tells the inputs' names, for entries to come; returns the sequence number of the first note.
    pub fn announce(&self, inputs: Vec<String>) -> Result<u64, ServiceError> {
        let first = self.journal.next()?;
        for (number, name) in (0..).zip(inputs) {
            self.writer
                .append(&Note::Input { number, name }.to_bytes()?)?;
        }
        Ok(first)
    }

    /// Notes what the component is about to be called with; returns the entry's sequence number.
    pub fn append(&self, entry: Entry) -> Result<u64, ServiceError> {
        let mut bytes = [0; 24];
        let mut out = Packer::new(&mut bytes);
        entry.pack(&mut out)?;
        Ok(self.writer.append(out.written())?)
    }

    /// All entries, or those from a note of names on, in the numbers that `inputs` have now.
    pub fn entries(&self, inputs: &[String], from: Option<u64>) -> Result<Entries, ServiceError> {
        let mut reader = self.journal.reader()?;
        if let Some(from) = from {
            reader.seek(from)?;
        }
        Ok(Entries {
            reader,
            schedule: self.name.clone(),
            inputs: inputs.to_vec(),
            numbers: Vec::new(),
        })
    }
}

/// Reads a schedule.
pub(super) struct Entries {
    reader: Reader,
    schedule: String,
    inputs: Vec<String>,
    /// The number that each input of the schedule has now.
    numbers: Vec<Option<u32>>,
}

impl Entries {
    /// The next entry and its sequence number. Those of an input that the service has no longer are left out.
    pub fn next(&mut self) -> Result<Option<(u64, Entry)>, ServiceError> {
        while let Some(record) = self.reader.next()? {
            let (sequence, body) = (record.sequence, record.body);
            let fault = |error: Box<WireError>| ServiceError::Input {
                journal: self.schedule.clone(),
                sequence,
                cause: error,
            };
            if let Ok(Record::Note(note)) = Record::read(body) {
                if let Note::Input { number, name } = Note::from_bytes(note).map_err(fault)? {
                    let number = number as usize;
                    let count = self.numbers.len().max(number + 1);
                    self.numbers.resize(count, None);
                    let now = self.inputs.iter().position(|input| *input == name);
                    self.numbers[number] = now.map(|now| now as u32);
                }
                continue;
            }
            match Entry::unpack(body).map_err(fault)? {
                Entry::Record {
                    input,
                    sequence: of,
                } => {
                    if let Some(Some(input)) = self.numbers.get(input as usize).copied() {
                        let entry = Entry::Record {
                            input,
                            sequence: of,
                        };
                        return Ok(Some((sequence, entry)));
                    }
                }
                timer => return Ok(Some((sequence, timer))),
            }
        }
        Ok(None)
    }
}

impl Entry {
    fn pack(self, out: &mut Packer<'_>) -> Result<(), Box<WireError>> {
        match self {
            Self::Record { input, sequence } => {
                out.array(2)?;
                out.uint(input.into())?;
                out.uint(sequence)
            }
            Self::Timer { timer, time_ns } => {
                out.array(3)?;
                out.nil()?;
                out.uint(timer.into())?;
                out.int(time_ns)
            }
        }
    }

    fn unpack(body: &[u8]) -> Result<Self, Box<WireError>> {
        let mut values = Unpacker::new(body);
        values.array()?;
        let entry = if values.take_nil()? {
            Self::Timer {
                timer: values.narrow_int("u32")?,
                time_ns: values.int()?,
            }
        } else {
            Self::Record {
                input: values.narrow_int("u32")?,
                sequence: values.uint()?,
            }
        };
        values.end()?;
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_these_bytes() {
        let record = Entry::Record {
            input: 1,
            sequence: 300,
        };
        let timer = Entry::Timer {
            timer: 2,
            time_ns: -5,
        };
        for (entry, bytes) in [
            (record, &b"\x92\x01\xcd\x01\x2c"[..]),
            (timer, &b"\x93\xc0\x02\xfb"[..]),
        ] {
            let mut space = [0; 24];
            let mut out = Packer::new(&mut space);
            entry.pack(&mut out).unwrap();
            assert_eq!(out.written(), bytes);
            assert_eq!(Entry::unpack(bytes).unwrap(), entry);
            for cut in 0..bytes.len() {
                assert!(Entry::unpack(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
}
