//! Positions as the state of a flow has them: an offset, and the identity of the topic in which it is one.
//!
//! A topic that was deleted and created anew has another identity, so that an offset of the first one is not taken for one of the
//! second. Brokers before 2.8 have no identities.

use millstream_flow::source::{Position, PositionError};

/// The version of positions: the offset, 8 bytes little-endian, and the identity as text, empty where there is none.
const VERSION: u8 = 1;

/// Returns the position to save.
pub(super) fn position(offset: i64, topic_id: Option<&str>) -> Position {
    let mut bytes = (offset.max(0) as u64).to_le_bytes().to_vec();
    bytes.extend(topic_id.unwrap_or_default().bytes());
    Position::bytes(VERSION, bytes)
}

/// Returns the offset of a saved position, and the identity of its topic if it is known.
pub(super) fn offset(saved: &Position) -> Result<(i64, Option<&str>), PositionError> {
    let (_, bytes) = saved.require_bytes(VERSION)?;
    let (offset, id) = bytes.split_first_chunk().ok_or(PositionError::Damaged)?;
    let id = std::str::from_utf8(id).map_err(|_| PositionError::Damaged)?;
    let id = Some(id).filter(|id| !id.is_empty());
    Ok((u64::from_le_bytes(*offset) as i64, id))
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
        let number = Position::from(7);
        assert_eq!(
            offset(&number),
            Err(PositionError::NotBytes(number.clone()))
        );
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
