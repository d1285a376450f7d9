//! A position in a commit: an integer where it is a number alone, else binary, as [`Position::encode`] writes it.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

use crate::source::Position;

/// Writes a position.
pub(super) fn serialize<S: Serializer>(position: &Position, to: S) -> Result<S::Ok, S::Error> {
    match position.number().filter(|_| position.checksum().is_none()) {
        Some(number) => to.serialize_u64(number),
        None => {
            let mut encoded = Vec::new();
            position.encode(&mut encoded);
            to.serialize_bytes(&encoded)
        }
    }
}

/// Reads a position.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Position, D::Error> {
    from.deserialize_any(PositionVisitor)
}

struct PositionVisitor;

impl Visitor<'_> for PositionVisitor {
    type Value = Position;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a position")
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<Position, E> {
        Ok(Position::from(number))
    }
    fn visit_bytes<E: Error>(self, encoded: &[u8]) -> Result<Position, E> {
        Position::decode(encoded).map_err(E::custom)
    }
}
