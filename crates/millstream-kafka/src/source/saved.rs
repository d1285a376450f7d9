//! Positions as the state of a flow has them: an offset, the leader epoch of the record before it, and the identity of
//! the topic.
//!
//! A topic that was deleted and created anew has another identity, so that an offset of the first one is not taken for
//! one of the second. Brokers before 2.8 have no identities. A partition that lost its end and grew again has another
//! leader epoch there (KIP-320).
//!
//! The record may be before the offset: what follows it were no messages, but the ends of transactions. The epoch is
//! that of the record.

use millstream_flow::source::{Position, PositionError};

use crate::client::LastRecord;

/// The version of positions: the offset; the offset after the last record, both 8 bytes; its leader epoch, 4 bytes, -1
/// if it is not known; all little-endian; and the identity as text, empty where there is none.
const VERSION: u8 = 1;

/// A position in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved<'a> {
    /// The offset of the next message.
    pub(super) offset: i64,
    /// The last record that was read, if its leader epoch is known.
    pub(super) last: Option<LastRecord>,
    /// The identity of the topic, if it is known.
    pub(super) topic_id: Option<&'a str>,
}

impl Saved<'_> {
    /// Returns the position to save.
    pub(super) fn position(&self) -> Position {
        let none = LastRecord { end: 0, epoch: -1 };
        let last = self.last.unwrap_or(none);
        let mut bytes = (self.offset.max(0) as u64).to_le_bytes().to_vec();
        bytes.extend((last.end.max(0) as u64).to_le_bytes());
        bytes.extend(last.epoch.to_le_bytes());
        bytes.extend(self.topic_id.unwrap_or_default().bytes());
        Position::bytes(VERSION, bytes)
    }
}

/// Reads a position that was saved.
pub(super) fn read(saved: &Position) -> Result<Saved<'_>, PositionError> {
    let (_, bytes) = saved.require_bytes(VERSION)?;
    let (offset, bytes) = bytes.split_first_chunk().ok_or(PositionError::Damaged)?;
    let (end, bytes) = bytes.split_first_chunk().ok_or(PositionError::Damaged)?;
    let (epoch, id) = bytes.split_first_chunk().ok_or(PositionError::Damaged)?;
    let id = std::str::from_utf8(id).map_err(|_| PositionError::Damaged)?;
    let last = LastRecord {
        end: u64::from_le_bytes(*end) as i64,
        epoch: i32::from_le_bytes(*epoch),
    };
    Ok(Saved {
        offset: u64::from_le_bytes(*offset) as i64,
        last: Some(last).filter(|last| last.epoch >= 0),
        topic_id: Some(id).filter(|id| !id.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_saved() {
        for topic_id in [None, Some("3Vf9GtWbQfC8eUe5Dmvq0w")] {
            for last in [None, Some(LastRecord { end: 5, epoch: 0 })] {
                let saved = Saved {
                    offset: 7,
                    last,
                    topic_id,
                };
                assert_eq!(read(&saved.position()), Ok(saved));
            }
        }
        let number = Position::from(7);
        assert_eq!(read(&number), Err(PositionError::NotBytes(number.clone())));
    }

    #[test]
    fn a_damaged_or_newer_position_is_an_error() {
        let damaged = Position::bytes(1, vec![1; 19]);
        assert_eq!(read(&damaged), Err(PositionError::Damaged));
        let newer = PositionError::Newer {
            found: 2,
            newest: 1,
        };
        assert_eq!(read(&Position::bytes(2, vec![0; 20])), Err(newer));
    }
}
