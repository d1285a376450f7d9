//! The schedule: the inputs and ticks that a service was called with, in order, in a journal beside the output journal.
//!
//! It holds *announcements* and *entries*. An announcement, at each start and end of the service and at each of its
//! snapshots, says which inputs and timers the service has, by identity and by name, and the position in each. With one
//! input and no timer the order is that of the input, and there are no entries. With several, an entry for each call
//! says which one came next.
//!
//! - A record of an input: `[input, sequence, checksum]`. A tick of a timer: `[nil, timer, time in ns, next]`, where
//!   `next` is its next occurrence, in ns, or the name of a one-off timer. The numbers are those of the last
//!   announcement.
//! - An announcement is a [note](millstream_wire::Record): `[0, "order", 1, outputs, checksum, inputs, gone, timers]`.
//!   `outputs` is the sequence number that the next output gets. An input is `[path, identity, start, next, checksum]`:
//!   the first record that the service ever took, and the one that it takes next. `gone` are inputs that the service
//!   had before. A timer is `[name, next]`, with its next occurrence in ns (0 of one-off timers).
//!
//! A checksum is that of the record before a position, or of the record of an entry: so a journal is noticed that has
//! lost its end. The positions of an announcement bind only if the outputs before it are there: after a loss of
//! outputs, the last one that is left says where to resume.

mod entries;

use std::path::{Path, PathBuf};

use millstream_journal::{
    Bookmark, Cursor, CursorMode, Error as JournalError, Journal, Options, Retention, Writer,
};
use millstream_wire::{Cause, InputName, Packer, Unpacker, WireError, pack};

use crate::error::ServiceError;
pub(crate) use entries::{Entries, EntryId, Step};

/// The version of announcements.
const VERSION: u64 = 1;
/// The kind of note that an announcement is.
const KIND: &str = "order";
/// The size of the segments for one input and no timer, where the schedule has few records.
const SEGMENT_BYTES: u64 = 4 << 20;

/// The largest entry without a name.
const ENTRY_BYTES: usize = 32;

/// A call of the component; the numbers are those of the last announcement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Record {
        input: u32,
        sequence: u64,
        checksum: u32,
    },
    Timer {
        timer: u32,
        time_ns: i64,
        next: Next,
    },
}

/// What a tick leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next occurrence of the timer.
    At(i64),
    /// The name under which the one-off timer was started.
    Named(String),
}

/// A timer and its next occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimerPosition {
    pub name: String,
    pub next_ns: i64,
}

/// The inputs and timers of a service, and its positions in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    /// The position of the next output: all before are effects of inputs before the announcement.
    pub outputs: Bookmark,
    pub inputs: Vec<InputPosition>,
    /// Inputs that the service had before, and the positions in them.
    pub gone: Vec<InputPosition>,
    pub timers: Vec<TimerPosition>,
}

/// An input and the position of a service in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputPosition {
    pub input: InputName,
    /// The first record that the service took in any run.
    pub start: u64,
    /// The record that it takes next: all before have had all their effects.
    pub next: u64,
    /// The checksum of the record before that, if it was there.
    pub checksum: Option<u32>,
}

impl InputPosition {
    /// The record that the service takes next, with the checksum of the one before.
    pub fn bookmark(&self) -> Bookmark {
        Bookmark {
            next: self.next,
            checksum: self.checksum,
        }
    }
}

impl Announcement {
    /// Whether the order that follows is that of the only input, so that there are no entries.
    pub fn is_implicit(&self) -> bool {
        self.inputs.len() == 1 && self.timers.is_empty()
    }
}

/// The schedule of a service.
pub(crate) struct Schedule {
    pub journal: Journal,
    pub name: String,
    writer: Option<Writer>,
    /// Protects what a start needs from pruning.
    cursor: Option<Cursor>,
    /// The announcement from which a start would read now.
    needed: Option<u64>,
}

/// The directory of the schedule of the service that writes to `output`: that path with `.schedule` appended.
pub(crate) fn path_beside(output: &Path) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".schedule");
    path.into()
}

impl Schedule {
    /// Opens the schedule of the service that writes to `output`; one of several inputs is larger. It is as durable
    /// as the output: with `sync=always` an entry survives a loss of power before the component is called.
    pub fn beside(output: &Journal, several: bool) -> Result<Self, ServiceError> {
        let path = path_beside(&output.path());
        let options = Options::default().with_sync(output.sync_mode());
        let options = if several {
            options
        } else {
            options.with_segment_bytes(SEGMENT_BYTES)
        };
        let journal = Journal::open(&path, options)?;
        Ok(Self {
            name: path.display().to_string(),
            writer: Some(journal.writer()?),
            cursor: Some(journal.cursor("needed", CursorMode::Exclusive)?),
            needed: None,
            journal,
        })
    }

    /// Opens the schedule of the service that writes, or wrote, to `output` to read it. `None` when there is none.
    pub fn recorded(output: &Path) -> Result<Option<Self>, ServiceError> {
        let path = path_beside(output);
        match Journal::open(&path, Options::read_only()) {
            Err(JournalError::NotFound { .. }) => Ok(None),
            journal => Ok(Some(Self {
                name: path.display().to_string(),
                journal: journal?,
                writer: None,
                cursor: None,
                needed: None,
            })),
        }
    }

    fn append_bytes(&self, bytes: &[u8]) -> Result<u64, ServiceError> {
        match &self.writer {
            Some(writer) => Ok(writer.append(bytes)?),
            None => Err(JournalError::ReadOnly {
                path: self.journal.path(),
            }
            .into()),
        }
    }

    /// Writes the inputs and timers for entries to come; returns the sequence number of the announcement.
    pub fn announce(&self, announcement: &Announcement) -> Result<u64, ServiceError> {
        self.append_bytes(&announcement.to_bytes()?)
    }

    /// Writes the entry for the next call of the component; returns the entry's sequence number.
    pub fn append(&self, entry: &Entry) -> Result<u64, ServiceError> {
        if let Entry::Timer {
            next: Next::Named(name),
            ..
        } = entry
        {
            return self.append_bytes(&pack(ENTRY_BYTES + name.len(), |out| entry.pack(out))?);
        }
        let mut bytes = [0; ENTRY_BYTES];
        let mut out = Packer::new(&mut bytes);
        entry.pack(&mut out)?;
        self.append_bytes(out.written())
    }

    /// A start would read from this announcement on. What comes before the one of the last call is removed: a start
    /// needs that one when a loss of power has taken outputs away.
    pub fn pass(&mut self, announcement: u64) -> Result<(), ServiceError> {
        let before = self.needed.replace(announcement);
        if let (Some(before), Some(cursor)) = (before, &self.cursor) {
            cursor.set(before)?;
            let passed = Retention {
                keep_for_cursors: true,
                ..Retention::default()
            };
            self.journal.prune(&passed)?;
        }
        Ok(())
    }

    /// Whether its oldest records have been removed.
    pub fn is_pruned(&self) -> Result<bool, ServiceError> {
        Ok(self.journal.first()? > 0)
    }

    /// All announcements and entries that are there, or those from an announcement on. Entries whose announcement was
    /// pruned are left out.
    pub fn entries(&self, from: Option<u64>) -> Result<Entries, ServiceError> {
        let mut reader = self.journal.reader()?;
        if let Some(from) = from {
            reader.seek(from)?;
        }
        let is_pruned = from.is_none() && self.is_pruned()?;
        Ok(Entries::new(reader, self.name.clone(), is_pruned))
    }
}

impl Announcement {
    fn to_bytes(&self) -> Result<Vec<u8>, ServiceError> {
        let places = self.inputs.iter().chain(&self.gone);
        let places = places.map(|place| place.input.path.len());
        let timers = self.timers.iter().map(|timer| timer.name.len());
        let size_max: usize = places.chain(timers).map(|len| len + 64).sum();
        Ok(pack(size_max + 64, |out| self.pack(out))?)
    }

    fn pack(&self, out: &mut Packer<'_>) -> Result<(), Box<WireError>> {
        out.nil()?;
        out.array(8)?;
        out.uint(0)?;
        out.str(KIND)?;
        out.uint(VERSION)?;
        pack_bookmark(self.outputs, out)?;
        pack_places(&self.inputs, out)?;
        pack_places(&self.gone, out)?;
        out.array(self.timers.len())?;
        self.timers.iter().try_for_each(|timer| {
            out.array(2)?;
            out.str(&timer.name)?;
            out.int(timer.next_ns)
        })
    }

    /// `None` for an entry.
    pub fn from_bytes(body: &[u8]) -> Result<Option<Self>, Cause> {
        let mut values = Unpacker::new(body);
        if !values.take_nil()? {
            return Ok(None);
        }
        values.array()?;
        values.uint()?;
        let kind = values.str()?;
        if kind != KIND {
            return Err(
                format!("a note of kind {kind:?}, and an announcement was expected").into(),
            );
        }
        let version = values.uint()?;
        if version != VERSION {
            return Err(format!(
                "an announcement of version {version}; this program reads {VERSION}"
            )
            .into());
        }
        let outputs = unpack_bookmark(&mut values)?;
        let inputs = unpack_places(&mut values)?;
        let gone = unpack_places(&mut values)?;
        let count = values.array()?;
        let timer = |_| {
            values.array_of(2)?;
            Ok(TimerPosition {
                name: values.str()?.to_owned(),
                next_ns: values.int()?,
            })
        };
        let timers: Result<_, Box<WireError>> = (0..count).map(timer).collect();
        let timers = timers?;
        values.end()?;
        Ok(Some(Self {
            outputs,
            inputs,
            gone,
            timers,
        }))
    }
}

/// Writes a position as two values: the number and the checksum, or nil.
pub(super) fn pack_bookmark(
    bookmark: Bookmark,
    out: &mut Packer<'_>,
) -> Result<(), Box<WireError>> {
    out.uint(bookmark.next)?;
    match bookmark.checksum {
        Some(checksum) => out.uint(checksum.into()),
        None => out.nil(),
    }
}

pub(super) fn unpack_bookmark(values: &mut Unpacker<'_>) -> Result<Bookmark, Box<WireError>> {
    let next = values.uint()?;
    let checksum = if values.take_nil()? {
        None
    } else {
        Some(values.narrow_int("u32")?)
    };
    Ok(Bookmark { next, checksum })
}

fn pack_places(places: &[InputPosition], out: &mut Packer<'_>) -> Result<(), Box<WireError>> {
    out.array(places.len())?;
    for place in places {
        out.array(5)?;
        place.input.pack(out)?;
        out.uint(place.start)?;
        pack_bookmark(place.bookmark(), out)?;
    }
    Ok(())
}

fn unpack_places(values: &mut Unpacker<'_>) -> Result<Vec<InputPosition>, Box<WireError>> {
    let count = values.array()?;
    let place = |_| {
        values.array_of(5)?;
        let input = InputName::unpack(values)?;
        let start = values.uint()?;
        let Bookmark { next, checksum } = unpack_bookmark(values)?;
        Ok(InputPosition {
            input,
            start,
            next,
            checksum,
        })
    };
    (0..count).map(place).collect()
}

impl Entry {
    fn pack(&self, out: &mut Packer<'_>) -> Result<(), Box<WireError>> {
        match self {
            Self::Record {
                input,
                sequence,
                checksum,
            } => {
                out.array(3)?;
                out.uint((*input).into())?;
                out.uint(*sequence)?;
                out.uint((*checksum).into())
            }
            Self::Timer {
                timer,
                time_ns,
                next,
            } => {
                out.array(4)?;
                out.nil()?;
                out.uint((*timer).into())?;
                out.int(*time_ns)?;
                match next {
                    Next::At(next_ns) => out.int(*next_ns),
                    Next::Named(name) => out.str(name),
                }
            }
        }
    }

    pub fn unpack(body: &[u8]) -> Result<Self, Box<WireError>> {
        let mut values = Unpacker::new(body);
        values.array()?;
        let entry = if values.take_nil()? {
            Self::Timer {
                timer: values.narrow_int("u32")?,
                time_ns: values.int()?,
                next: match values.clone().str() {
                    Ok(_) => Next::Named(values.str()?.to_owned()),
                    Err(_) => Next::At(values.int()?),
                },
            }
        } else {
            Self::Record {
                input: values.narrow_int("u32")?,
                sequence: values.uint()?,
                checksum: values.narrow_int("u32")?,
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
            checksum: 5,
        };
        let timer = |next| Entry::Timer {
            timer: 2,
            time_ns: -5,
            next,
        };
        for (entry, bytes) in [
            (record, &b"\x93\x01\xcd\x01\x2c\x05"[..]),
            (timer(Next::At(7)), &b"\x94\xc0\x02\xfb\x07"[..]),
            (
                timer(Next::Named("A".to_owned())),
                &b"\x94\xc0\x02\xfb\xa1A"[..],
            ),
        ] {
            let mut space = [0; ENTRY_BYTES];
            let mut out = Packer::new(&mut space);
            entry.pack(&mut out).unwrap();
            assert_eq!(out.written(), bytes);
            assert_eq!(Entry::unpack(bytes).unwrap(), entry);
            for cut in 0..bytes.len() {
                assert!(Entry::unpack(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_announcement_is_these_bytes() {
        let place = |path: &str, identity, start, next| InputPosition {
            input: InputName {
                path: path.to_owned(),
                identity,
            },
            start,
            next,
            checksum: (next > 0).then_some(9),
        };
        let announcement = Announcement {
            outputs: Bookmark::after(4, 300),
            inputs: vec![place("a", 1, 2, 3), place("b", 4, 0, 0)],
            gone: vec![place("d", 6, 7, 8)],
            timers: vec![TimerPosition {
                name: "beat".to_owned(),
                next_ns: 9,
            }],
        };
        let id = |last: u8| [&b"\xc4\x10"[..], &[0; 15], &[last]].concat();
        let bytes = [
            &b"\xc0\x98\x00\xa5order\x01\x05\xcd\x01\x2c\x92\x95\xa1a"[..],
            &id(1),
            b"\x02\x03\x09\x95\xa1b",
            &id(4),
            b"\x00\x00\xc0\x91\x95\xa1d",
            &id(6),
            b"\x07\x08\x09\x91\x92\xa4beat\x09",
        ]
        .concat();
        assert_eq!(announcement.to_bytes().unwrap(), bytes);
        let read = Announcement::from_bytes(&bytes).unwrap();
        assert_eq!(read, Some(announcement));
        for cut in 0..bytes.len() {
            assert!(Announcement::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        let mut later = bytes;
        later[9] = 2;
        let error = Announcement::from_bytes(&later).unwrap_err().to_string();
        assert_eq!(error, "an announcement of version 2; this program reads 1");
    }
}
