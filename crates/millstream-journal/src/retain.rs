//! Removal: old segments from the front, records from the end, and the file that says where the journal starts.

pub(crate) mod cut;
pub(crate) mod prune;
pub(crate) mod start;
