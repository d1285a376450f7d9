//! The two sides of a join, and the state of a key.

use std::cell::Cell;

use crate::state::backlog::{Backlog, Chain};
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
#[non_exhaustive]
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
    /// Whether it is saved as alone.
    pub(super) saved_alone: Cell<bool>,
    pub(super) value: T,
}

impl<T> Retained<T> {
    pub(super) fn new(time: i64, alone: bool, value: T) -> Self {
        Retained {
            time,
            alone,
            saved_alone: Cell::new(alone),
            value,
        }
    }
}

/// The state of one key.
#[doc(hidden)] // For the other crates of Millstream.
pub struct JoinState<L, R> {
    /// Items that the watermark has not passed yet, in the order of their processing.
    pub(super) waiting: Backlog<Timed<Side<L, R>>>,
    /// The latest items, or all that are recent enough to find partners.
    pub(super) left: Backlog<Retained<L>>,
    pub(super) right: Backlog<Retained<R>>,
    /// The time at which the key is removed.
    pub(super) expires: i64,
    pub(super) chain: Chain,
}

impl<T> JoinState<T, T> {
    /// The items of the left and of the right stream that may find partners, with their times.
    pub(crate) fn retained(&self) -> [Vec<(i64, &T)>; 2] {
        [&self.left, &self.right].map(|side| {
            let items = side.iter();
            items.map(|item| (item.time, &item.value)).collect()
        })
    }

    /// The items that wait for their turn.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Timed<Side<T, T>>> {
        self.waiting.iter()
    }

    /// The time at which the key is removed.
    pub(crate) fn expires(&self) -> i64 {
        self.expires
    }
}

/// Adds an item to those that wait: left ones come after right ones of their time.
pub(super) fn wait<L, R>(waiting: &mut Backlog<Timed<Side<L, R>>>, item: Timed<Side<L, R>>) {
    let turn = |item: &Timed<Side<L, R>>| (item.time, matches!(item.value, Side::Left(_)));
    let own = turn(&item);
    waiting.insert_before(item, |other| turn(other) > own);
}
