//! A group of items, with the times of the first and the last: a session, or a window by number.

use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;

/// The items of a group in aggregated form.
pub(super) struct Group<A> {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) items: u64,
    pub(super) acc: A,
}

impl<A> Group<A> {
    /// Appends `[first, last, items, accumulator]`.
    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(4, out);
        for number in [self.first, self.last, self.items as i64] {
            pack::integer(number, out);
        }
        codec.save(&self.acc, out)
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        pack::take_members(4, from)?;
        Ok(Group {
            first: pack::take_integer(from)?,
            last: pack::take_integer(from)?,
            items: pack::take_count(from)?,
            acc: codec.load(from)?,
        })
    }
}
