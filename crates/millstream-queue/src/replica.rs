//! A second machine: all changes of all queues are written to one journal, which followers copy and apply.
//!
//! ```text
//!   leader                                             follower
//!   set, get, ...                                      queue/jobs      queue/errors
//!     |                                                     ^               ^
//!     v                                                     |   applied     |
//!   queue/jobs, queue/errors ---> .changes  ---------> .changes ------------+
//!     the log of each queue        all changes,  the replication
//!                                  in their order    of journals
//! ```
//!
//! What a follower acknowledges, which followers count, and the terms that fence an old leader are those of the journal
//! of changes. Now and then a *snapshot* is written to it: with it a new follower has all, and what is before it can be
//! removed.
//!
//! The position of a record is the same on both sides, so that the ids of items stay.

mod change;
mod changes;
mod copies;
mod follow;
mod log;
mod replay;
mod storage;
mod survey;
#[cfg(test)]
mod tests;

pub(crate) use self::change::Change;
pub(crate) use self::changes::{Changes, SharedChanges, prune};
pub(crate) use self::copies::make_changes;
pub use self::copies::{changes_of, complete, rebuild_from_changes};
pub use self::follow::follow_into;
pub use self::log::{ReplicatedLog, ReplicatedSyncing};
pub use self::storage::ReplicatedStorage;
