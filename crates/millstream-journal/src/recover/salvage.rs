//! Reading what can be read of a journal that is damaged, even where it cannot be opened.
//!
//! Only frames whose checksums match are accepted. Segments are numbered by the names of their files; missing ones are
//! skipped. After a damaged frame the next sound one is searched word by word. A damaged header is corrected where one
//! bit of it differs from its checksum. Otherwise the frames determine the epoch: a checksum depends on 32 bits of it,
//! which one frame yields and the next one confirms. Only damage that extends from the header to the frames loses the
//! segment.
//!
//! The invariant: the files are only read, and each record that is returned has a checksum that fits its body, number
//! and time.
//!
//! ```
//! use millstream_journal::{Journal, Options, Salvage};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("j");
//! # let journal = Journal::open(&path, Options::default())?;
//! # journal.writer()?.append_many(["first", "second"])?;
//! # drop(journal);
//! let mut salvage = Salvage::open(&path)?;
//! let mut bodies = Vec::new();
//! while let Some((_, record)) = salvage.next() {
//!     bodies.push(record.body.to_vec());
//! }
//! assert_eq!(bodies, [&b"first"[..], b"second"]);
//! assert!(salvage.lost().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod frames;
mod headers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use self::frames::{next_sound, sound_head};
use self::headers::SalvagedSegment;
use crate::error::{Error, Result};
use crate::format::files;
use crate::format::frame::Kind;
use crate::format::published::Published;
use crate::format::segment;
use crate::read::reader::Record;
use crate::recover::verify::Damage;
use crate::retain::start::{self, Start};
use crate::storage::{Mapped, Storage};

/// Where a record is that was salvaged, to [read](Salvage::read) it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct RecordPlace {
    segment: u64,
    offset: u64,
    sequence: u64,
}

/// All records of a journal that can be read, in order.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Salvage<S: Storage = Mapped> {
    storage: S,
    start: Option<Start>,
    /// Segments that are still to be read, the next one last.
    left: Vec<u64>,
    /// Those that were opened.
    parts: BTreeMap<u64, SalvagedSegment<S::Region>>,
    at: Option<Position>,
    /// The number of the next record, where the frames before it determine it.
    expected: Option<u64>,
    /// Where the frames of the segment before ended, without an end frame.
    ended: Option<Position>,
    lost: Vec<Damage>,
}

/// The next frame.
#[derive(Clone, Copy, Debug)]
struct Position {
    segment: u64,
    offset: u64,
    sequence: u64,
}

impl<S: Storage> fmt::Debug for Salvage<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Salvage(at {:?} of {:?})",
            self.at,
            self.storage.path("")
        )
    }
}

impl Salvage {
    /// The journal in the directory `path`, which no process should have open to write.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no segment; an error of the system. Damage is no error here.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(Mapped::new(path))
    }
}

impl<S: Storage> Salvage<S> {
    /// [`open`](Salvage::open) for any storage.
    ///
    /// # Errors
    /// As [`open`](Salvage::open).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn open_in(storage: S) -> Result<Self> {
        let mut lost = Vec::new();
        let start = start::read(&storage).unwrap_or_else(|error| {
            lost.push(Damage::of(error, &storage, files::START));
            None
        });
        let mut left = files::segments(&storage)?;
        // What an interrupted prune has left is no part of the journal.
        left.retain(|number| start.is_none_or(|start| *number >= start.segment));
        if left.is_empty() {
            return Err(Error::NotFound {
                path: storage.path(""),
            });
        }
        left.reverse();
        let mut salvage = Salvage {
            storage,
            start,
            left,
            parts: BTreeMap::new(),
            at: None,
            expected: None,
            ended: None,
            lost,
        };
        if let Some(start) = start {
            salvage.expected = Some(start.base);
            salvage.note_missing(start.segment);
        }
        Ok(salvage)
    }

    /// What could not be read so far, in the order of the files.
    #[must_use]
    pub fn lost(&self) -> &[Damage] {
        &self.lost
    }

    /// The next record, and where it is; `None` after the last one.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows from the salvage, which an iterator cannot say"
    )]
    pub fn next(&mut self) -> Option<(RecordPlace, Record<'_>)> {
        let place = self.find_next()?;
        Some((place, self.read(place)?))
    }

    /// A record that [`next`](Self::next) returned, once more. `None` when it cannot be read any more.
    #[must_use]
    #[expect(unsafe_code, reason = "the body of a published frame does not change")]
    pub fn read(&self, place: RecordPlace) -> Option<Record<'_>> {
        let segment = &self.parts.get(&place.segment)?.segment;
        let frame = Published::at(segment, place.offset).ok()??;
        let body_crc = frame.sound_body_crc(place.sequence)?;
        Some(Record {
            sequence: place.sequence,
            time_ns: segment.time_ns(place.offset),
            // SAFETY: the segment has a sound frame with this head there. Files that are salvaged are not written
            // meanwhile, and this mapping is for reading.
            body: unsafe { segment.body(place.offset, *frame) },
            body_crc,
        })
    }

    fn find_next(&mut self) -> Option<RecordPlace> {
        loop {
            let Some(at) = self.at else {
                self.begin_segment()?;
                continue;
            };
            let segment = &self.parts.get(&at.segment)?.segment;
            match sound_head(segment, at.offset, at.sequence) {
                Some(head) if head.kind == Kind::Record => {
                    self.at = Some(Position {
                        offset: at.offset + head.bytes(),
                        sequence: at.sequence + 1,
                        ..at
                    });
                    return Some(RecordPlace {
                        segment: at.segment,
                        offset: at.offset,
                        sequence: at.sequence,
                    });
                }
                Some(_) => {
                    self.end_segment(Some(at.sequence));
                    if self.left.is_empty() {
                        let what = "the segment is missing: the segment before it has ended";
                        let records = Some(at.sequence..u64::MAX);
                        self.note(at.segment + 1, 0, what, records);
                    }
                }
                None => self.skip(at),
            }
        }
    }

    /// Go to the next segment that can be read; `None` when there is none.
    fn begin_segment(&mut self) -> Option<()> {
        let number = self.left.pop()?;
        let opened = headers::open(&self.storage, number, self.start, self.expected);
        self.lost.extend(opened.damages);
        let Some(part) = opened.part else {
            self.end_segment_of(number, None);
            return Some(());
        };
        self.know_base(part.base);
        if let Some(end) = self.ended.take()
            && end.sequence < part.base
        {
            let what = "the frames end before the record with which the next segment begins";
            let records = Some(end.sequence..part.base);
            self.note(end.segment, end.offset, what, records);
        }
        self.at = Some(Position {
            segment: number,
            offset: part.from,
            sequence: part.base,
        });
        self.parts.insert(number, part);
        Some(())
    }

    /// Ends the loss before a segment at the base of the segment.
    fn know_base(&mut self, base: u64) {
        let last = self.lost.last_mut().and_then(|lost| lost.records.as_mut());
        if let Some(records) = last.filter(|records| records.end == u64::MAX) {
            records.end = base.max(records.start);
        }
    }

    fn end_segment(&mut self, expected: Option<u64>) {
        if let Some(at) = self.at.take() {
            self.end_segment_of(at.segment, expected);
        }
    }

    fn end_segment_of(&mut self, number: u64, expected: Option<u64>) {
        self.expected = expected;
        self.note_missing(number + 1);
    }

    /// Segments that are missing from this one on, when later ones are there.
    fn note_missing(&mut self, from: u64) {
        let Some(&next) = self.left.last().filter(|next| **next > from) else {
            return;
        };
        for number in from..next {
            let records = self.expected.take().map(|expected| expected..u64::MAX);
            self.note(number, 0, "the segment is missing", records);
        }
    }

    /// There is no sound frame here: find the next one in this segment.
    #[cold]
    fn skip(&mut self, at: Position) {
        let Some(part) = self.parts.get(&at.segment) else {
            return self.end_segment(None);
        };
        let segment = &part.segment;
        let is_last = self.left.is_empty();
        let known = segment.tail().offset.max(segment.durable().offset);
        let is_end = segment.head(at.offset) == Ok(None) && at.offset >= known;
        if is_end {
            self.ended = Some(at);
            return self.end_segment(Some(at.sequence));
        }
        let next = next_sound(segment, at.offset, at.sequence);
        let what = match segment.head(at.offset) {
            Ok(None) => {
                "a frame that was written is missing, or the mark that counts it is damaged"
            }
            Ok(Some(_)) => "a frame does not match its checksum",
            Err(what) => what,
        };
        match next {
            Some(next) => {
                let records = Some(at.sequence..next.records);
                self.note(at.segment, at.offset, what, records);
                self.at = Some(Position {
                    offset: next.offset,
                    sequence: next.records,
                    ..at
                });
            }
            None => {
                // Their number is known where the next segment begins.
                let records = (!is_last).then_some(at.sequence..u64::MAX);
                self.note(at.segment, at.offset, what, records);
                self.end_segment(None);
            }
        }
    }

    fn note(
        &mut self,
        number: u64,
        offset: u64,
        what: &str,
        records: Option<std::ops::Range<u64>>,
    ) {
        self.lost.push(Damage {
            path: self.storage.path(&segment::name(number)),
            offset,
            what: what.to_owned(),
            records,
        });
    }
}
