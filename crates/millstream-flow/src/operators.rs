//! The verbs of streams, one a file: what a step does with a batch.

mod batches;
pub mod calls;
pub mod collect;
mod debug;
pub mod keyed;
pub mod lookups;
pub mod verbs;
