//! The verbs of streams, and what their steps do with a batch. Simple verbs are together in `verbs` and `keyed`; others have a file each.
//! Windows and joins are in `time`.

mod aggregates;
mod batches;
pub mod calls;
mod changes;
#[doc(hidden)] // For the other crates of Millstream.
pub mod collect;
mod debug;
pub mod keyed;
#[doc(hidden)]
pub mod limits;
pub mod lookups;
#[doc(hidden)]
pub mod misplaced;
mod stateful;
pub mod verbs;
