//! The operators: what a step does with a batch, one file for each method of a stream.

mod aggregates;
mod batches;
pub mod calls;
pub mod collect;
mod debug;
pub mod keyed;
pub mod lookups;
mod stateful;
pub mod verbs;
