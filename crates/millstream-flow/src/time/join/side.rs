//! The two sides of a join, and the state of a key.

use std::collections::VecDeque;

use crate::time::Timed;

/// An item of one of two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side<L, R> {
    /// An item of the left stream.
    Left(L),
    /// An item of the right stream.
    Right(R),
}

/// Which items without a partner are emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Those of the left stream.
    Left,
    /// Those of both streams.
    Full,
}

/// An item that may find partners.
pub(super) struct Retained<T> {
    pub(super) time: i64,
    pub(super) alone: bool,
    pub(super) value: T,
}

/// The state of one key.
pub struct JoinState<L, R> {
    /// Items that the watermark has not passed yet, in the order of their processing.
    pub(super) waiting: VecDeque<Timed<Side<L, R>>>,
    /// The latest items, or all that are recent enough to find partners.
    pub(super) left: VecDeque<Retained<L>>,
    pub(super) right: VecDeque<Retained<R>>,
    /// The time at which the key is removed.
    pub(super) expires: i64,
}
