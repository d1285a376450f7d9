//! Positions as the state of a flow has them: an offset, and the identity of the topic in which it is one.
//!
//! A topic that was deleted and created anew has another identity, so that an offset of the old one is not taken for one of the new.
//! Brokers before 2.8 have no identities, and earlier versions of the connector saved none: such a position is a number.

use millstream_flow::source::{Position, PositionError};

/// The version of positions with an identity: the offset, 8 bytes little-endian, and the identity as text.
const VERSION: u8 = 1;

/// Returns the position to save.
pub(super) fn position(offset: i64, topic_id: Option<&str>) -> Position {
    let offset = offset.max(0) as u64;
    match topic_id {
        None => Position::from(offset),
        Some(id) => {
            let mut bytes = offset.to_le_bytes().to_vec();
            bytes.extend(id.bytes());
            Position::bytes(VERSION, bytes)
        }
    }
}

/// Returns the offset of a saved position, and the identity of its topic if it is known.
pub(super) fn offset(saved: &Position) -> Result<(i64, Option<&str>), PositionError> {
    if let Some(number) = saved.number() {
        return Ok((number as i64, None));
    }
    let (_, bytes) = saved.require_bytes(VERSION)?;
    let (offset, id) = bytes.split_first_chunk().ok_or(PositionError::Damaged)?;
    let id = std::str::from_utf8(id).map_err(|_| PositionError::Damaged)?;
    Ok((u64::from_le_bytes(*offset) as i64, Some(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_saved() {
        for id in [None, Some("3Vf9GtWbQfC8eUe5Dmvq0w")] {
            let saved = position(7, id);
            assert_eq!(offset(&saved), Ok((7, id)));
        }
        // As earlier versions saved it.
        assert_eq!(offset(&Position::from(7)), Ok((7, None)));
        assert_eq!(position(7, None), Position::from(7));
    }

    #[test]
    fn a_damaged_or_newer_position_is_an_error() {
        let damaged = Position::bytes(1, vec![1; 7]);
        assert_eq!(offset(&damaged), Err(PositionError::Damaged));
        let newer = PositionError::Newer {
            found: 2,
            newest: 1,
        };
        assert_eq!(offset(&Position::bytes(2, vec![0; 8])), Err(newer));
    }
}
