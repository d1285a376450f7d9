//! The verbs of streams, and what their steps do with a batch. Simple verbs are together in `verbs` and `keyed`; others
//! have a file each.

mod aggregates;
pub mod assign;
mod batches;
pub mod calls;
mod changes;
#[doc(hidden)] // For the other crates of Millstream.
pub mod collect;
mod debug;
pub mod join;
pub mod keyed;
#[doc(hidden)]
pub mod limits;
pub mod lookups;
#[doc(hidden)]
pub mod misplaced;
#[doc(hidden)] // For the other crates of Millstream.
pub mod shown;
mod stateful;
pub mod verbs;
pub mod window;
