//! Positions that know the record before them, so that a journal which has lost its end and grown again is noticed.
//!
//! A sequence number alone does not say which record it means: after a loss of power, or when an older copy of the
//! directory was restored, the numbers at the end are used a second time. What stores a position beyond the life of a
//! process therefore stores a [`Bookmark`], and
//! [confirms](crate::Journal::confirm) it before it resumes from there.
//!
//! ```
//! use millstream_journal::{Error, Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let orders = Journal::open(folder.path().join("orders"), Options::default())?;
//! orders.writer()?.append_many(["a", "b", "c"])?;
//! let read = orders.bookmark(2)?;
//! orders.confirm(read)?;
//!
//! // An older copy of the journal, which has only the first record.
//! let older = Journal::open(folder.path().join("older"), Options::default())?;
//! older.writer()?.append(b"a")?;
//! assert!(matches!(older.confirm(read), Err(Error::Lost { sequence: 1, next: 1, .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::format::checksum;

/// A position in a journal, and the checksum of the record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark {
    /// The sequence number of the record to read next.
    pub next: u64,
    /// The [checksum](checksum_of) of the record before it. `None` where no record was before it: at the start of the
    /// journal, or at the oldest record that was left.
    pub checksum: Option<u32>,
}

impl Bookmark {
    /// How many bytes [`to_bytes`](Self::to_bytes) returns.
    #[doc(hidden)] // For the other crates of Millstream.
    pub const BYTES: usize = 16;

    /// The position after a record.
    #[must_use]
    pub fn after(sequence: u64, checksum: u32) -> Self {
        Bookmark {
            next: sequence + 1,
            checksum: Some(checksum),
        }
    }

    /// The position and the checksum, little-endian: 8 bytes, 4 bytes, and 1 as 4 bytes, or 0 without a checksum.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let [next, word] = self.words();
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&next.to_le_bytes());
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written; `None` for other bytes.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else {
            return None;
        };
        let [next, word] = words else {
            return None;
        };
        Self::from_words(u64::from_le_bytes(*next), u64::from_le_bytes(*word))
    }

    /// The two words of a bookmark in a file.
    pub(crate) fn words(self) -> [u64; 2] {
        let known = |checksum| 1 << 32 | u64::from(checksum);
        [self.next, self.checksum.map_or(0, known)]
    }

    pub(crate) fn from_words(next: u64, word: u64) -> Option<Self> {
        let checksum = match (word >> 32, word as u32) {
            (0, 0) => None,
            (1, checksum) => Some(checksum),
            _ => return None,
        };
        Some(Bookmark { next, checksum })
    }
}

/// The checksum by which a record is recognised, in each copy of its journal: CRC32C of its body, its number (8 bytes,
/// little-endian) and its time in ns (8 bytes).
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn checksum_of(sequence: u64, time_ns: u64, body: &[u8]) -> u32 {
    checksum_from(checksum::append(0, body), sequence, time_ns)
}

/// [`checksum_of`], when the checksum of the body alone is known.
#[inline]
pub(crate) fn checksum_from(body_crc: u32, sequence: u64, time_ns: u64) -> u32 {
    let numbers = u128::from(time_ns) << 64 | u128::from(sequence);
    checksum::append(body_crc, &numbers.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_survives_its_bytes() {
        let marks = [(0, None), (7, Some(0)), (u64::MAX, Some(u32::MAX))];
        for (next, checksum) in marks {
            let mark = Bookmark { next, checksum };
            assert_eq!(Bookmark::from_bytes(&mark.to_bytes()), Some(mark));
        }
        let bytes = Bookmark::after(0x0102, 0xA1B2_C3D4).to_bytes();
        assert_eq!(
            bytes,
            [3, 1, 0, 0, 0, 0, 0, 0, 0xD4, 0xC3, 0xB2, 0xA1, 1, 0, 0, 0]
        );
        for wrong in [&bytes[..15], &[9; 16], &[0; 24], b""] {
            assert_eq!(Bookmark::from_bytes(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn every_part_of_a_record_changes_its_checksum() {
        let checksum = checksum_of(1, 2, b"body");
        for other in [
            checksum_of(3, 2, b"body"),
            checksum_of(1, 3, b"body"),
            checksum_of(1, 2, b"bodx"),
            checksum_of(1, 2, b"body\0"),
        ] {
            assert_ne!(other, checksum);
        }
        let all = [&b"body"[..], &1_u64.to_le_bytes(), &2_u64.to_le_bytes()].concat();
        assert_eq!(checksum, crc32c::crc32c(&all));
    }
}
