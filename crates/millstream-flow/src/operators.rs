//! The verbs of streams, one a file: what a step does with a batch.

mod aggregates;
mod batches;
pub mod calls;
pub mod collect;
mod debug;
pub mod keyed;
pub mod lookups;
mod stateful;
pub mod verbs;
