//! Records of the state journal of any length: a long one is divided into fragments where it is appended, and joined
//! where it is read.
//!
//! This is the only place that knows of it: what is above sees records that are whole. The picture of a fragment is in
//! [`record`](super::record).
//!
//! Invariant: the fragments of a record have consecutive numbers. An epoch counts only with the commit record after it,
//! so that a record of which a crash has left a part never counts. Segments are pruned without regard to records, so
//! that a journal may begin with the last fragments of a record that no longer counts.

use std::borrow::Cow;
use std::ops::Range;

use millstream_journal::Reader;

use crate::error::Cause;
use crate::saved::changes::VERSION;

/// The kind of a fragment.
pub(super) const FRAGMENT: u8 = 7;
/// The bytes of a record in one fragment; shorter records are not divided.
pub(super) const FRAGMENT_BYTES: usize = 1 << 20;
/// The header of a fragment: version, kind, its place in the record, the length of the record.
const HEAD_BYTES: usize = 2 + 8 + 8;
/// The longest record of the journal.
pub(super) const STORED_BYTES_MAX: u32 = (HEAD_BYTES + FRAGMENT_BYTES) as u32;

/// Divides a record into what is appended to the journal for it.
pub(super) fn divide(record: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let length = record.len();
    let starts = (0..).step_by(FRAGMENT_BYTES);
    let divided = record.chunks(FRAGMENT_BYTES).zip(starts);
    divided.map(move |(bytes, start): (_, usize)| {
        if length > FRAGMENT_BYTES {
            let mut fragment = Vec::with_capacity(HEAD_BYTES + bytes.len());
            fragment.extend([VERSION, FRAGMENT]);
            fragment.extend((start as u64).to_le_bytes());
            fragment.extend((length as u64).to_le_bytes());
            fragment.extend(bytes);
            Cow::Owned(fragment)
        } else {
            Cow::Borrowed(bytes)
        }
    })
}

/// The number of records of the journal into which a record is divided.
pub(super) fn count(record: &[u8]) -> u64 {
    record.len().div_ceil(FRAGMENT_BYTES) as u64
}

/// A fragment as it is read.
struct Fragment<'a> {
    start: u64,
    length: u64,
    bytes: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Reads a fragment; `None` for a record that is not divided.
    fn read(stored: &'a [u8]) -> Result<Option<Self>, String> {
        let Some((&[VERSION, FRAGMENT], rest)) = stored.split_first_chunk() else {
            return Ok(None);
        };
        let short = || "a fragment is too short".to_owned();
        let (start, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (length, bytes) = rest.split_first_chunk().ok_or_else(short)?;
        Ok(Some(Fragment {
            start: u64::from_le_bytes(*start),
            length: u64::from_le_bytes(*length),
            bytes,
        }))
    }
}

/// A record that is whole, after its numbers in the journal.
type Whole<'a> = (Range<u64>, Cow<'a, [u8]>);

/// Joins the fragments of records, which are added in the order of the journal.
#[derive(Default)]
pub(super) struct Join {
    /// The number of the first fragment.
    first: u64,
    /// The fragments so far.
    body: Vec<u8>,
    /// The length of all of them; 0 if the last record was whole.
    length: u64,
    /// Whether the beginning of a record was read.
    has_begun: bool,
}

impl Join {
    /// Adds a record of the journal. Returns the record that is whole with it, and its numbers.
    pub(super) fn add<'a>(
        &'a mut self,
        sequence: u64,
        stored: &'a [u8],
    ) -> Result<Option<Whole<'a>>, String> {
        let fragment = Fragment::read(stored)?;
        let is_open = self.length > 0;
        let begins = fragment.as_ref().is_none_or(|it| it.start == 0);
        if begins && is_open {
            return Err("the record before it lacks its last fragments".to_owned());
        }
        self.has_begun |= begins;
        let Some(fragment) = fragment else {
            return Ok(Some((sequence..sequence + 1, Cow::Borrowed(stored))));
        };
        if begins {
            (self.first, self.length) = (sequence, fragment.length);
        } else if !self.has_begun {
            return Ok(None);
        }
        let end = fragment.start + fragment.bytes.len() as u64;
        let follows = fragment.start == self.body.len() as u64 && fragment.length == self.length;
        if !follows || end > self.length || fragment.bytes.is_empty() {
            return Err("it is a fragment of another record than the one before it".to_owned());
        }
        self.body.extend(fragment.bytes);
        if end < self.length {
            return Ok(None);
        }
        self.length = 0;
        let record = std::mem::take(&mut self.body);
        Ok(Some((self.first..sequence + 1, Cow::Owned(record))))
    }
}

/// Passes each whole record from the position of `reader` to number `end` to `each`, with its numbers in the journal.
pub(super) fn read_each(
    reader: &mut Reader,
    end: u64,
    mut each: impl FnMut(Range<u64>, &[u8]) -> Result<(), String>,
) -> Result<(), Cause> {
    let mut join = Join::default();
    while reader.position() < end
        && let Some(stored) = reader.next()?
    {
        let sequence = stored.sequence;
        let mut add = || match join.add(sequence, stored.body)? {
            Some((numbers, record)) => each(numbers, &record),
            None => Ok(()),
        };
        add().map_err(|what| format!("record {sequence}: {what}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8 | 8).collect()
    }

    fn joined<'a>(join: &mut Join, stored: &'a [Vec<u8>]) -> Result<Vec<Whole<'a>>, String> {
        let mut whole = Vec::new();
        for (sequence, stored) in (10..).zip(stored) {
            let found = join.add(sequence, stored)?;
            whole.extend(found.map(|(numbers, record)| (numbers, record.into_owned().into())));
        }
        Ok(whole)
    }

    fn divided(record: &[u8]) -> Vec<Vec<u8>> {
        divide(record).map(Cow::into_owned).collect()
    }

    #[test]
    fn records_of_any_length_are_joined_as_they_were() {
        let mut stored = Vec::new();
        let mut expected = Vec::new();
        let lengths = [1, FRAGMENT_BYTES - 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1];
        let longer = [2 * FRAGMENT_BYTES, 3 * FRAGMENT_BYTES + 7];
        for length in lengths.into_iter().chain(longer).chain(lengths) {
            let record = record(length);
            let parts = divided(&record);
            assert_eq!(parts.len() as u64, count(&record));
            assert!(
                parts
                    .iter()
                    .all(|part| part.len() <= STORED_BYTES_MAX as usize)
            );
            let first = 10 + stored.len() as u64;
            expected.push((first..first + count(&record), record.into()));
            stored.extend(parts);
        }
        assert_eq!(joined(&mut Join::default(), &stored), Ok(expected));
    }

    #[test]
    fn a_journal_may_begin_and_end_within_a_record() {
        let long = record(3 * FRAGMENT_BYTES);
        let short = record(5);
        let whole = [divided(&long), divided(&short), divided(&long)].concat();
        for begin in 1..3 {
            for end in 4..whole.len() {
                let found = joined(&mut Join::default(), &whole[begin..end]).expect("no error");
                let records: Vec<_> = found.iter().map(|(_, record)| &record[..]).collect();
                assert_eq!(records, [&short[..]]);
            }
        }
    }

    #[test]
    fn a_fragment_that_is_missing_or_foreign_is_an_error() {
        let long = record(3 * FRAGMENT_BYTES);
        let other = record(3 * FRAGMENT_BYTES + 1);
        let parts = divided(&long);
        let others = divided(&other);
        let broken = [
            vec![parts[0].clone(), parts[2].clone()],
            vec![parts[0].clone(), parts[0].clone()],
            vec![parts[0].clone(), others[1].clone()],
            vec![parts[0].clone(), record(9)],
            vec![record(9), parts[1].clone()],
            vec![parts[0][..17].to_vec()],
            vec![parts[0][..18].to_vec()],
        ];
        for stored in broken {
            assert!(joined(&mut Join::default(), &stored).is_err());
        }
    }
}
