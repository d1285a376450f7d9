//! The position of a partition of a source: a number, or bytes of the source's own.
//!
//! The engine saves positions at commits and passes them to the source again; only the source knows what they mean. A
//! number is enough for the bytes of a file; a number with a checksum of what is before it, for the records of a
//! journal, which may lose its end and use its numbers again. A cloud store or the log of a database has positions that
//! are no numbers, and saves bytes with a version, so that a later version of the source can read them.
//!
//! Invariant: no number and no bytes have a meaning of their own. What is unknown is an `Option`.
//!
//! ```
//! use millstream_flow::source::Position;
//!
//! let read = Position::from(4096);
//! assert_eq!(read.number(), Some(4096));
//! assert!(read < Position::from(4097));
//!
//! let token = Position::bytes(1, b"page-7".to_vec());
//! assert_eq!(token.as_bytes(), Some((1, &b"page-7"[..])));
//! assert_eq!(token.partial_cmp(&read), None);
//! ```

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The first byte of an encoded position.
const NUMBER: u8 = 1;
const BYTES: u8 = 2;
const MARKED: u8 = 3;
/// How many bytes of a position people see.
const SHOWN_BYTES: usize = 32;

/// The position of a partition, in the source's own unit: bytes of a file, records of a journal, the token of a
/// service. A partition that is opened at a position continues after it.
///
/// A position is made from a number, [with a checksum](Self::with_checksum) of what is before it or without one, or
/// with [`bytes`](Self::bytes). A clone copies no bytes. Two numbers that differ are ordered, and equal positions are
/// equal; other positions have no order.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Position(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    Number { number: u64, checksum: Option<u32> },
    Bytes { version: u8, bytes: Arc<[u8]> },
}

/// A position that a source cannot use, or bytes that are no position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PositionError {
    /// The source has numbers, and the position is bytes.
    #[error("the saved position {0} is not a number, and the source has numbers as positions")]
    NotNumber(Position),
    /// The source has bytes, and the position is a number.
    #[error("the saved position {0} is a number, and the source has other positions")]
    NotBytes(Position),
    /// The position is of a newer version of the source.
    #[error(
        "the saved position is of version {found}, and this program's source reads up to version {newest}; use the newer program"
    )]
    Newer {
        /// The version of the position.
        found: u8,
        /// The newest version that the source reads.
        newest: u8,
    },
    /// The first byte of an encoded position is not known.
    #[error("a saved position has the unknown form {0}")]
    UnknownForm(u8),
    /// The bytes are damaged.
    #[error("a saved position is damaged")]
    Damaged,
}

impl Position {
    /// A position of the source's own: `bytes`, written as version `version` of the source's format says. Versions
    /// begin with 1.
    #[must_use]
    pub fn bytes(version: u8, bytes: Vec<u8>) -> Self {
        Position(Form::Bytes {
            version,
            bytes: bytes.into(),
        })
    }

    /// A number with a checksum of what is before it, by which the source notices that its input has lost its end and
    /// grown again.
    ///
    /// ```
    /// use millstream_flow::source::Position;
    ///
    /// let read = Position::with_checksum(4096, 0xA1B2_C3D4);
    /// assert_eq!((read.number(), read.checksum()), (Some(4096), Some(0xA1B2_C3D4)));
    /// assert!(read > Position::from(4095));
    /// ```
    #[must_use]
    pub fn with_checksum(number: u64, checksum: u32) -> Self {
        Position(Form::Number {
            number,
            checksum: Some(checksum),
        })
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match &self.0 {
            Form::Number { number, .. } => Some(*number),
            Form::Bytes { .. } => None,
        }
    }

    /// The checksum of what is before it, if it is a number [with one](Self::with_checksum).
    #[must_use]
    pub fn checksum(&self) -> Option<u32> {
        match &self.0 {
            Form::Number { checksum, .. } => *checksum,
            Form::Bytes { .. } => None,
        }
    }

    /// Version and bytes, if it is not a number.
    #[must_use]
    pub fn as_bytes(&self) -> Option<(u8, &[u8])> {
        match &self.0 {
            Form::Number { .. } => None,
            Form::Bytes { version, bytes } => Some((*version, bytes)),
        }
    }

    /// The number, for a source whose positions are numbers.
    ///
    /// # Errors
    /// It is not a number. Where [`Source::open`](crate::source::Source::open) returns this error, the error of the run
    /// names source and partition.
    pub fn require_number(&self) -> Result<u64, PositionError> {
        self.number()
            .ok_or_else(|| PositionError::NotNumber(self.clone()))
    }

    /// Version and bytes, for a source that reads versions up to `newest`.
    ///
    /// ```
    /// use millstream_flow::source::{Position, PositionError};
    ///
    /// let saved = Position::bytes(2, b"7/42".to_vec());
    /// assert_eq!(saved.require_bytes(2), Ok((2, &b"7/42"[..])));
    /// assert_eq!(saved.require_bytes(1), Err(PositionError::Newer { found: 2, newest: 1 }));
    /// ```
    ///
    /// # Errors
    /// It is a number, or of a newer version. Where [`Source::open`](crate::source::Source::open) returns this error,
    /// the error of the run names source and partition.
    pub fn require_bytes(&self, newest: u8) -> Result<(u8, &[u8]), PositionError> {
        match self.as_bytes() {
            None => Err(PositionError::NotBytes(self.clone())),
            Some((found, _)) if found > newest => Err(PositionError::Newer { found, newest }),
            Some(read) => Ok(read),
        }
    }

    /// Appends the position as [`decode`](Self::decode) reads it: the byte 1 and the number, 8 bytes little-endian; the
    /// byte 2, the version and the bytes; or the byte 3, the number and the checksum, 4 bytes little-endian.
    ///
    /// ```
    /// use millstream_flow::source::Position;
    ///
    /// let mut saved = Vec::new();
    /// Position::bytes(7, vec![9, 9]).encode(&mut saved);
    /// assert_eq!(saved, [2, 7, 9, 9]);
    /// assert_eq!(Position::decode(&saved)?, Position::bytes(7, vec![9, 9]));
    /// # Ok::<(), millstream_flow::source::PositionError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Form::Number { number, checksum } => {
                out.push(checksum.map_or(NUMBER, |_| MARKED));
                out.extend(number.to_le_bytes());
                out.extend(checksum.iter().flat_map(|checksum| checksum.to_le_bytes()));
            }
            Form::Bytes { version, bytes } => {
                out.extend([BYTES, *version]);
                out.extend(&**bytes);
            }
        }
    }

    /// Reads a position that [`encode`](Self::encode) has written; `encoded` has no other bytes.
    ///
    /// # Errors
    /// A form that this program does not know, or bytes that are too few or too many.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn decode(encoded: &[u8]) -> Result<Self, PositionError> {
        match encoded {
            [NUMBER, number @ ..] => {
                let number = number.try_into().map_err(|_| PositionError::Damaged)?;
                Ok(Position::from(u64::from_le_bytes(number)))
            }
            [MARKED, marked @ ..] => match marked.as_chunks::<4>() {
                ([low, high, checksum], []) => {
                    let [low, high, checksum] =
                        [low, high, checksum].map(|word| u32::from_le_bytes(*word));
                    let number = u64::from(high) << 32 | u64::from(low);
                    Ok(Position::with_checksum(number, checksum))
                }
                _ => Err(PositionError::Damaged),
            },
            [BYTES, version, bytes @ ..] => Ok(Position::bytes(*version, bytes.to_vec())),
            [BYTES] | [] => Err(PositionError::Damaged),
            [form, ..] => Err(PositionError::UnknownForm(*form)),
        }
    }
}

impl From<u64> for Position {
    fn from(number: u64) -> Self {
        Position(Form::Number {
            number,
            checksum: None,
        })
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other_position: &Self) -> Option<Ordering> {
        match (&self.0, &other_position.0) {
            (Form::Number { number: this, .. }, Form::Number { number: other, .. }) => {
                let order = this.cmp(other);
                (order.is_ne() || self == other_position).then_some(order)
            }
            (this, other) => (this == other).then_some(Ordering::Equal),
        }
    }
}

/// A number as it is; bytes as `version:hexadecimal digits`, the first 32 of them.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Number { number, .. } => write!(f, "{number}"),
            Form::Bytes { version, bytes } => {
                write!(f, "v{version}:")?;
                for byte in bytes.iter().take(SHOWN_BYTES) {
                    write!(f, "{byte:02x}")?;
                }
                match bytes.len() {
                    0..=SHOWN_BYTES => Ok(()),
                    length => write!(f, "... ({length} bytes)"),
                }
            }
        }
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(version: u8, bytes: &[u8]) -> Position {
        Position::bytes(version, bytes.to_vec())
    }

    #[test]
    fn numbers_are_ordered_and_other_positions_only_equal() {
        let low = Position::from(0);
        let high = Position::from(u64::MAX);
        assert!(low < high);
        let token = bytes(1, b"b");
        assert_eq!(token.partial_cmp(&bytes(1, b"b")), Some(Ordering::Equal));
        for other in [bytes(1, b"a"), bytes(2, b"b"), bytes(1, b""), low, high] {
            assert_eq!(token.partial_cmp(&other), None, "{other}");
            assert_eq!(other.partial_cmp(&token), None, "{other}");
            assert_ne!(token, other);
        }
        // A number is not its bytes.
        assert_ne!(Position::from(7), bytes(0, &7u64.to_le_bytes()));
    }

    #[test]
    fn a_position_is_decoded_as_it_was_encoded() {
        let positions = [
            Position::from(0),
            Position::from(u64::MAX),
            bytes(0, b""),
            bytes(255, b"\x01\x02"),
            bytes(3, &[0; 1000]),
            Position::with_checksum(0x0102_0304_0506_0708, 0x090A_0B0C),
            Position::with_checksum(u64::MAX, 0),
        ];
        for position in positions {
            let mut encoded = Vec::new();
            position.encode(&mut encoded);
            assert_eq!(Position::decode(&encoded), Ok(position));
        }
        let mut encoded = Vec::new();
        Position::from(0x0102).encode(&mut encoded);
        assert_eq!(encoded, [1, 2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn bytes_that_are_no_position_are_an_error() {
        let mut number = Vec::new();
        Position::from(9).encode(&mut number);
        for length in 0..number.len() {
            let read = Position::decode(&number[..length]);
            assert_eq!(read, Err(PositionError::Damaged), "{length} bytes");
        }
        number.push(0);
        assert_eq!(Position::decode(&number), Err(PositionError::Damaged));
        assert_eq!(Position::decode(&[2]), Err(PositionError::Damaged));
        let mut marked = Vec::new();
        Position::with_checksum(9, 9).encode(&mut marked);
        for length in 0..marked.len() {
            let read = Position::decode(&marked[..length]);
            assert_eq!(read, Err(PositionError::Damaged), "{length} bytes");
        }
        for form in [0, 4, 255] {
            let read = Position::decode(&[form, 1, 2]);
            assert_eq!(read, Err(PositionError::UnknownForm(form)));
        }
    }

    #[test]
    fn a_source_reads_its_own_kind_and_versions_up_to_its_own() {
        let number = Position::from(5);
        let token = bytes(2, b"t");
        assert_eq!(number.require_number(), Ok(5));
        assert_eq!(
            token.require_number().map_err(|error| error.to_string()),
            Err(
                "the saved position v2:74 is not a number, and the source has numbers as positions"
                    .to_owned()
            )
        );
        for newest in [2, 3] {
            assert_eq!(token.require_bytes(newest), Ok((2, &b"t"[..])));
        }
        let found = 2;
        let newest = 1;
        assert_eq!(
            token.require_bytes(newest),
            Err(PositionError::Newer { found, newest })
        );
        assert_eq!(
            number.require_bytes(9),
            Err(PositionError::NotBytes(number.clone()))
        );
    }

    #[test]
    fn people_see_a_number_or_the_first_bytes() {
        assert_eq!(Position::from(12).to_string(), "12");
        assert_eq!(bytes(1, b"\x00\xff").to_string(), "v1:00ff");
        assert_eq!(format!("{:?}", bytes(1, b"a")), "Position(v1:61)");
        let long = bytes(1, &[0xab; 33]).to_string();
        assert_eq!(long, format!("v1:{}... (33 bytes)", "ab".repeat(32)));
    }
}
