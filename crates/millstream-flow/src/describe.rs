//! The description of a flow: its graph, its streams, and the files that it reads and writes.

pub(crate) mod gathered;
pub mod graph;
pub(crate) mod letters;
#[doc(hidden)] // For the other crates of Millstream.
pub mod overlap;
pub mod stream;
