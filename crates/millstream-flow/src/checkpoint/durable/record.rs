//! The records of a durable source's input, byte by byte.
//!
//! ```text
//! +---------+------+-------+---+--------+----------+--------+--------+------+----------------+------------------+-------+
//! | version | kind | ended | 0 | frames | position | offset | length | name | length | place | start, end  ...  | bytes |
//! +---------+------+-------+---+--------+----------+--------+--------+------+----------------+------------------+-------+
//!      1       1       1     1     4        8          8        2                4               4 + 4 a frame
//! ```
//!
//! Numbers are little-endian. A record is a batch of one partition, whose name stands in it. `frames` is how many there are;
//! each lies from `start` to `end` in the bytes, which may have framing in between. `position` is where the source stood behind
//! the batch, all ones where it is not known; `offset` is that of the first byte in the source. A record without frames only
//! says where the source stands, and, with `ended`, that the partition has come to its end.
//!
//! `place` is the same as `position` in bytes of the source's own, where a number cannot say it (see
//! [`Partition::place`](crate::source::Partition::place)). A record of version 2 has it; one of version 1 has neither it nor its
//! length. A record is of version 2 only if there is a place.

use crate::batch::Kind;
use crate::error::Cause;
use crate::framing::Frames;
use crate::source::Position;

/// The version of a record without a place, and of one with it.
const VERSION: u8 = 1;
const VERSION_PLACED: u8 = 2;
/// Up to the name of the partition.
const HEAD_BYTES: usize = 26;
const SPAN_BYTES: usize = 8;
/// The length of a place.
const PLACE_BYTES: usize = 4;
const UNKNOWN: u64 = u64::MAX;

/// What a record says besides its frames.
pub(super) struct Head<'a> {
    pub(super) kind: Kind,
    pub(super) partition: &'a str,
    pub(super) position: Option<Position>,
    pub(super) place: Option<&'a [u8]>,
    pub(super) ended: bool,
}

impl Head<'_> {
    /// Appends the record of a batch to `out`.
    pub(super) fn write(&self, frames: &Frames, out: &mut Vec<u8>) -> Result<(), Cause> {
        let name = u16::try_from(self.partition.len())
            .map_err(|_| "the name of a partition is longer than 65,535 bytes")?;
        let place = self.place.map(|place| u32::try_from(place.len()));
        let place = place.transpose();
        let place = place.map_err(|_| "the position of a partition is larger than 4 GiB")?;
        // What a read left behind its last frame is not part of the batch.
        let first = frames.spans.first().map_or(0, |span| span.0);
        let last = frames.spans.last().map_or(0, |span| span.1);
        let bytes = &frames.data[first as usize..last as usize];
        out.reserve(HEAD_BYTES + usize::from(name) + frames.len() * SPAN_BYTES + bytes.len());
        let version = place.map_or(VERSION, |_| VERSION_PLACED);
        out.extend([version, self.kind as u8, u8::from(self.ended), 0]);
        out.extend((frames.len() as u32).to_le_bytes());
        out.extend(self.position.unwrap_or(UNKNOWN).to_le_bytes());
        out.extend((frames.offset + u64::from(first)).to_le_bytes());
        out.extend(name.to_le_bytes());
        out.extend(self.partition.as_bytes());
        if let (Some(length), Some(place)) = (place, self.place) {
            out.extend(length.to_le_bytes());
            out.extend(place);
        }
        for (start, end) in &frames.spans {
            out.extend((start - first).to_le_bytes());
            out.extend((end - first).to_le_bytes());
        }
        out.extend(bytes);
        Ok(())
    }
}

/// A batch as it was recorded, where it lies in the journal.
#[derive(Clone, Copy, Debug)]
pub struct RecordedBatch<'a> {
    /// The number of its record.
    pub sequence: u64,
    /// When it was recorded, in nanoseconds since 1970, by the clock of the run.
    pub time_ns: u64,
    /// The partition that it was read from.
    pub partition: &'a str,
    /// How its items are written.
    pub kind: Kind,
    /// Where the source stood behind it.
    pub position: Option<Position>,
    /// The same in bytes of the source's own, where a number cannot say it.
    pub place: Option<&'a [u8]>,
    /// True when the partition has come to its end; such a record has no items.
    pub ended: bool,
    offset: u64,
    spans: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> RecordedBatch<'a> {
    /// Reads the body of a record; an error says what is wrong with it.
    pub(super) fn read(sequence: u64, time_ns: u64, body: &'a [u8]) -> Result<Self, String> {
        let version = *body.first().ok_or("it is empty")?;
        if !(VERSION..=VERSION_PLACED).contains(&version) {
            return Err(format!(
                "version {version}, this program reads up to {VERSION_PLACED}; use a newer Millstream"
            ));
        }
        let short = "it is too short";
        let (head, rest) = body.split_at_checked(HEAD_BYTES).ok_or(short)?;
        let word = |at| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let frames = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let name = usize::from(u16::from_le_bytes([head[24], head[25]]));
        let (name, rest) = rest.split_at_checked(name).ok_or(short)?;
        let (place, rest) = match version {
            VERSION => (None, rest),
            _ => read_place(rest).ok_or(short)?,
        };
        let spans = frames.checked_mul(SPAN_BYTES).ok_or(short)?;
        let (spans, bytes) = rest.split_at_checked(spans).ok_or(short)?;
        let batch = RecordedBatch {
            sequence,
            time_ns,
            partition: std::str::from_utf8(name).map_err(|_| "its partition has no name")?,
            kind: Kind::of(head[1]).ok_or_else(|| format!("its kind is {}", head[1]))?,
            position: Some(word(8)).filter(|position| *position != UNKNOWN),
            place,
            ended: head[2] != 0,
            offset: word(16),
            spans,
            bytes,
        };
        match batch
            .spans()
            .all(|(start, end)| start <= end && end as usize <= bytes.len())
        {
            true => Ok(batch),
            false => Err("a frame lies outside of it".to_owned()),
        }
    }

    fn spans(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        let word = |bytes: &[u8]| u32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        let spans = self.spans.chunks_exact(SPAN_BYTES);
        spans.map(move |span| (word(&span[..4]), word(&span[4..])))
    }

    /// The items as they are written.
    pub fn items(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans()
            .map(move |(start, end)| &bytes[start as usize..end as usize])
    }

    /// The batch as frames, written over `frames`.
    pub fn copy_to(&self, frames: &mut Frames) {
        frames.clear();
        frames.offset = self.offset;
        frames.data.extend_from_slice(self.bytes);
        frames.spans.extend(self.spans());
    }
}

/// The place that `bytes` begin with, and what follows it.
fn read_place(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<PLACE_BYTES>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (place, rest) = rest.split_at_checked(length)?;
    Some((Some(place), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(place: Option<&[u8]>) -> Vec<u8> {
        let frames = Frames {
            data: b"..\x03one\x03two....".to_vec(),
            spans: vec![(3, 6), (7, 10)],
            offset: 100,
        };
        let head = Head {
            kind: Kind::Bytes,
            partition: "part",
            position: Some(7),
            place,
            ended: false,
        };
        let mut body = Vec::new();
        head.write(&frames, &mut body).expect("it fits");
        body
    }

    #[test]
    fn a_batch_is_read_as_it_was_written_without_what_lies_around_it() {
        let body = written(None);
        // As versions before places wrote it.
        assert_eq!(body[0], 1);
        assert_eq!(body.len(), 26 + 4 + 2 * 8 + 7);
        let batch = RecordedBatch::read(5, 9, &body).expect("it is sound");
        assert_eq!(
            (batch.sequence, batch.time_ns, batch.partition),
            (5, 9, "part")
        );
        assert_eq!((batch.position, batch.ended), (Some(7), false));
        assert_eq!(batch.place, None);
        assert_eq!(batch.items().collect::<Vec<_>>(), [b"one", b"two"]);
        let mut frames = Frames::default();
        batch.copy_to(&mut frames);
        assert_eq!(frames.get(1), b"two");
        // An error that names the second frame names its place in the source.
        assert_eq!(frames.offset + u64::from(frames.spans[1].0), 107);
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for place in [&b""[..], b"token"] {
            let body = written(Some(place));
            assert_eq!(body[0], 2);
            let batch = RecordedBatch::read(5, 9, &body).expect("it is sound");
            assert_eq!((batch.position, batch.place), (Some(7), Some(place)));
            assert_eq!(batch.items().collect::<Vec<_>>(), [b"one", b"two"]);
        }
    }

    #[test]
    fn what_is_no_batch_is_an_error_wherever_it_breaks_off() {
        for body in [written(None), written(Some(b"token"))] {
            for length in 0..body.len() {
                let said = RecordedBatch::read(0, 0, &body[..length]);
                assert!(said.is_err(), "{length} bytes are taken for a batch");
            }
        }
        let body = written(None);
        for (at, value) in [(0, 2), (0, 3), (1, 9), (4, 200), (30, 255)] {
            let mut wrong = body.clone();
            wrong[at] = value;
            assert!(RecordedBatch::read(0, 0, &wrong).is_err(), "byte {at}");
        }
    }
}
