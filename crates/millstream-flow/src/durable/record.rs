//! The records of a durable source's input, byte by byte.
//!
//! ```text
//! +---------+------+-------+------+--------+--------+--------+--------+------+----------------------------+------------+-------+
//! | version | kind | ended | form | frames | number | offset | length | name | length, version, position  | start, end | bytes |
//! +---------+------+-------+------+--------+--------+--------+--------+------+----------------------------+------------+-------+
//!      1       1       1      1      4        8        8        2                  4        1               4 + 4 a frame
//! ```
//!
//! Numbers are little-endian. A record is a batch of one partition, which it names. `frames` is the number of frames;
//! each is from `start` to `end` in the bytes, which may have framing in between. `offset` is that of the first byte in
//! the source. A record without frames only notes the position of the source, and, with `ended`, that the partition has
//! come to its end.
//!
//! The position of the source after the batch has one of three forms. 0: it is not known, and `number` is 0. 1: it is
//! `number`. 2: it is bytes of the source's own, with their `length`, which does not count their `version`; other forms
//! have none of these.

use crate::batch::Kind;
use crate::error::Cause;
use crate::framing::Frames;
use crate::source::Position;

/// The version of a record.
const VERSION: u8 = 1;
/// Up to the name of the partition.
const HEAD_BYTES: usize = 26;
const SPAN_BYTES: usize = 8;
/// The length of a position in bytes.
const LENGTH_BYTES: usize = 4;

/// The forms of a position.
const UNKNOWN: u8 = 0;
const NUMBER: u8 = 1;
const BYTES: u8 = 2;

/// The contents of a record besides its frames.
pub(super) struct Head<'a> {
    pub(super) kind: Kind,
    pub(super) partition: &'a str,
    /// The source's own position, if it is known.
    pub(super) position: Option<&'a Position>,
    pub(super) ended: bool,
}

impl Head<'_> {
    /// Appends the record of a batch to `out`.
    pub(super) fn write(&self, frames: &Frames, out: &mut Vec<u8>) -> Result<(), Cause> {
        let name = u16::try_from(self.partition.len())
            .map_err(|_| "the name of a partition is longer than 65,535 bytes")?;
        let position = self.position.and_then(Position::as_bytes);
        let length = position.map(|(_, bytes)| u32::try_from(bytes.len()));
        let length = length.transpose();
        let length = length.map_err(|_| "the position of a partition is larger than 4 GiB")?;
        let number = self.position.and_then(Position::number);
        let form = match (number, position) {
            (Some(_), _) => NUMBER,
            (None, Some(_)) => BYTES,
            (None, None) => UNKNOWN,
        };
        // Bytes after the last frame are not part of the batch.
        let first = frames.spans.first().map_or(0, |span| span.0);
        let last = frames.spans.last().map_or(0, |span| span.1);
        let bytes = &frames.data[first as usize..last as usize];
        out.reserve(HEAD_BYTES + usize::from(name) + frames.len() * SPAN_BYTES + bytes.len());
        out.extend([VERSION, self.kind as u8, u8::from(self.ended), form]);
        out.extend((frames.len() as u32).to_le_bytes());
        out.extend(number.unwrap_or_default().to_le_bytes());
        out.extend((frames.offset + u64::from(first)).to_le_bytes());
        out.extend(name.to_le_bytes());
        out.extend(self.partition.as_bytes());
        if let (Some(length), Some((version, bytes))) = (length, position) {
            out.extend(length.to_le_bytes());
            out.push(version);
            out.extend(bytes);
        }
        for (start, end) in &frames.spans {
            out.extend((start - first).to_le_bytes());
            out.extend((end - first).to_le_bytes());
        }
        out.extend(bytes);
        Ok(())
    }
}

/// The position of a source, as it is recorded.
#[derive(Clone, Copy, Debug)]
enum RecordedPosition<'a> {
    Unknown,
    Number(u64),
    Bytes(u8, &'a [u8]),
}

/// A recorded batch, in the memory of the journal.
#[derive(Clone, Copy, Debug)]
pub struct RecordedBatch<'a> {
    /// The number of its record.
    pub sequence: u64,
    /// The time of recording by the clock of the run, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The partition that it was read from.
    pub partition: &'a str,
    /// The encoding of its items.
    #[doc(hidden)] // For the other crates of Millstream.
    pub kind: Kind,
    /// True at the end of the partition; such a record has no items.
    pub ended: bool,
    position: RecordedPosition<'a>,
    offset: u64,
    spans: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> RecordedBatch<'a> {
    /// Parses the body of a record.
    pub(super) fn read(sequence: u64, time_ns: u64, body: &'a [u8]) -> Result<Self, String> {
        let version = *body.first().ok_or("it is empty")?;
        if version != VERSION {
            return Err(format!("version {version}, this program reads {VERSION}"));
        }
        let short = "it is too short";
        let (head, rest) = body.split_at_checked(HEAD_BYTES).ok_or(short)?;
        let word = |at| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let frames = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let name = usize::from(u16::from_le_bytes([head[24], head[25]]));
        let (name, rest) = rest.split_at_checked(name).ok_or(short)?;
        let (position, rest) = match head[3] {
            UNKNOWN => (RecordedPosition::Unknown, rest),
            NUMBER => (RecordedPosition::Number(word(8)), rest),
            BYTES => read_bytes(rest).ok_or(short)?,
            form => return Err(format!("the form of its position is {form}")),
        };
        let spans = frames.checked_mul(SPAN_BYTES).ok_or(short)?;
        let (spans, bytes) = rest.split_at_checked(spans).ok_or(short)?;
        let batch = RecordedBatch {
            sequence,
            time_ns,
            partition: std::str::from_utf8(name).map_err(|_| "its partition has no name")?,
            kind: Kind::of(head[1]).ok_or_else(|| format!("its kind is {}", head[1]))?,
            ended: head[2] != 0,
            position,
            offset: word(16),
            spans,
            bytes,
        };
        if batch
            .spans()
            .all(|(start, end)| start <= end && end as usize <= bytes.len())
        {
            Ok(batch)
        } else {
            Err("a frame lies outside of it".to_owned())
        }
    }

    fn spans(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        let word = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        let spans = self.spans.chunks_exact(SPAN_BYTES);
        spans.map(move |span| (word(&span[..4]), word(&span[4..])))
    }

    /// The position of the source after it, if it is known.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match self.position {
            RecordedPosition::Unknown => None,
            RecordedPosition::Number(number) => Some(Position::from(number)),
            RecordedPosition::Bytes(version, bytes) => {
                Some(Position::bytes(version, bytes.to_vec()))
            }
        }
    }

    /// The items as they are written.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans()
            .map(move |(start, end)| &bytes[start as usize..end as usize])
    }

    /// The batch as frames, written over `frames`.
    pub(crate) fn copy_to(&self, frames: &mut Frames) {
        frames.clear();
        frames.offset = self.offset;
        frames.data.extend_from_slice(self.bytes);
        frames.spans.extend(self.spans());
    }
}

/// The position that `from` begins with, and what follows it.
fn read_bytes(from: &[u8]) -> Option<(RecordedPosition<'_>, &[u8])> {
    let (length, rest) = from.split_first_chunk::<LENGTH_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (version, rest) = rest.split_first()?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    Some((RecordedPosition::Bytes(*version, bytes), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(position: Option<&Position>) -> Vec<u8> {
        let frames = Frames {
            data: b"..\x03one\x03two....".to_vec(),
            spans: vec![(3, 6), (7, 10)],
            offset: 100,
            origin: None,
            numbers: Vec::new(),
        };
        let head = Head {
            kind: Kind::Bytes,
            partition: "part",
            position,
            ended: false,
        };
        let mut body = Vec::new();
        head.write(&frames, &mut body).expect("it fits");
        body
    }

    #[test]
    fn a_batch_is_read_as_it_was_written_without_its_surroundings() {
        let body = written(Some(&Position::from(7)));
        assert_eq!((body[0], body[3]), (1, 1));
        assert_eq!(body.len(), 26 + 4 + 2 * 8 + 7);
        let batch = RecordedBatch::read(5, 9, &body).expect("it is sound");
        assert_eq!(
            (batch.sequence, batch.time_ns, batch.partition),
            (5, 9, "part")
        );
        assert_eq!(
            (batch.position(), batch.ended),
            (Some(Position::from(7)), false)
        );
        assert_eq!(batch.items().collect::<Vec<_>>(), [b"one", b"two"]);
        let mut frames = Frames::default();
        batch.copy_to(&mut frames);
        assert_eq!(frames.get(1), b"two");
        // An error that names the second frame names its offset in the source.
        assert_eq!(frames.offset + u64::from(frames.spans[1].0), 107);
    }

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let positions = [
            None,
            Some(Position::from(0)),
            Some(Position::from(u64::MAX)),
            Some(Position::bytes(0, Vec::new())),
            Some(Position::bytes(9, b"token".to_vec())),
        ];
        for position in positions {
            let body = written(position.as_ref());
            let batch = RecordedBatch::read(5, 9, &body).expect("it is sound");
            assert_eq!(batch.position(), position);
            assert_eq!(batch.items().collect::<Vec<_>>(), [b"one", b"two"]);
        }
    }

    #[test]
    fn what_is_no_batch_is_an_error_wherever_it_breaks_off() {
        let token = Position::bytes(1, b"token".to_vec());
        for body in [written(Some(&Position::from(7))), written(Some(&token))] {
            for length in 0..body.len() {
                let read = RecordedBatch::read(0, 0, &body[..length]);
                assert!(read.is_err(), "{length} bytes are taken for a batch");
            }
        }
        let body = written(Some(&Position::from(7)));
        for (at, value) in [(0, 0), (0, 2), (1, 9), (3, 2), (3, 3), (4, 200), (30, 255)] {
            let mut wrong = body.clone();
            wrong[at] = value;
            assert!(RecordedBatch::read(0, 0, &wrong).is_err(), "byte {at}");
        }
    }
}
