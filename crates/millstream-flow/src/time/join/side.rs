//! The two sides of a join, and what a join keeps for a key.

use std::collections::VecDeque;

use crate::time::Timed;

/// An item of one of two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side<L, R> {
    /// Of the left stream.
    Left(L),
    /// Of the right stream.
    Right(R),
}

/// Which items come out that find no partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// None.
    Inner,
    /// Those of the left stream.
    Left,
    /// Those of both streams.
    Full,
}

/// An item that looks for partners.
pub(super) struct Retained<T> {
    pub(super) time: i64,
    pub(super) alone: bool,
    pub(super) value: T,
}

/// What a join keeps for one key.
pub struct Joining<L, R> {
    /// Items that time has not passed yet, in the order of their turns.
    pub(super) waiting: VecDeque<Timed<Side<L, R>>>,
    /// The latest ones, or all that are near enough to find partners yet.
    pub(super) left: VecDeque<Retained<L>>,
    pub(super) right: VecDeque<Retained<R>>,
    /// When the key is forgotten.
    pub(super) expires: i64,
}
