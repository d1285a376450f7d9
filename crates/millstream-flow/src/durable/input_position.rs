//! The position of a partition of a durable source, as the state directory has it.
//!
//! A partition that goes on is at a number, that of its last processed record. One that has ended is at bytes of
//! version 1: the number of the record that notes the end, 8 bytes little-endian, or no bytes where that record is not
//! known.

use crate::source::{Position, PositionError};

/// The version of the bytes.
const VERSION: u8 = 1;

/// The position of a partition in its recorded input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputPosition {
    /// After this record.
    Record(u64),
    /// At the end of the partition, which this record notes.
    End(Option<u64>),
}

impl InputPosition {
    /// Reads a position of a state directory.
    pub(super) fn of(position: &Position) -> Result<Self, PositionError> {
        if let Some(number) = position.number() {
            return Ok(InputPosition::Record(number));
        }
        match position.require_bytes(VERSION)? {
            (VERSION, []) => Ok(InputPosition::End(None)),
            (VERSION, bytes) => {
                let number = bytes.try_into().map_err(|_| PositionError::Damaged)?;
                Ok(InputPosition::End(Some(u64::from_le_bytes(number))))
            }
            _ => Err(PositionError::Damaged),
        }
    }

    /// The same where the partition has come to its end.
    pub(super) fn at_end(self) -> Self {
        InputPosition::End(self.record())
    }

    /// The record, if it is known.
    pub(super) fn record(self) -> Option<u64> {
        match self {
            InputPosition::Record(sequence) => Some(sequence),
            InputPosition::End(sequence) => sequence,
        }
    }
}

impl From<InputPosition> for Position {
    fn from(position: InputPosition) -> Self {
        match position {
            InputPosition::Record(sequence) => Position::from(sequence),
            InputPosition::End(sequence) => {
                let bytes = sequence.map(|sequence| sequence.to_le_bytes().to_vec());
                Position::bytes(VERSION, bytes.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InputPosition::{End, Record};
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for position in [
            Record(0),
            Record(u64::MAX),
            End(Some(0)),
            End(Some(7)),
            End(None),
        ] {
            assert_eq!(InputPosition::of(&Position::from(position)), Ok(position));
        }
    }

    #[test]
    fn what_is_no_position_is_an_error() {
        let of = |version, bytes: &[u8]| InputPosition::of(&Position::bytes(version, bytes.into()));
        assert_eq!(of(1, &[0; 7]), Err(PositionError::Damaged));
        assert_eq!(of(1, &[0; 9]), Err(PositionError::Damaged));
        assert_eq!(of(0, &[0; 8]), Err(PositionError::Damaged));
        let found = 2;
        let newest = 1;
        assert_eq!(of(2, &[0; 8]), Err(PositionError::Newer { found, newest }));
    }
}
