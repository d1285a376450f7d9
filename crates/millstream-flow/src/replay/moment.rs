//! The parts of a replay: inputs, their beginning and end, and their batches.

use std::path::PathBuf;

use crate::batch::Kind;
use crate::framing::Frames;

/// The beginning or end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Point {
    /// The record of this number; valid if there is one input.
    Sequence(u64),
    /// The first record of this time or later; nanoseconds since 1970.
    Time(u64),
}

/// The recorded input of one source.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    pub(super) source: String,
    pub(super) path: PathBuf,
    /// True for a journal whose records are unencoded frames.
    pub(super) plain: bool,
}

/// The description of a recorded input for a flow.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) source: String,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) partitions: Vec<String>,
}

/// A recorded batch.
#[derive(Default)]
pub(super) struct Moment {
    /// Nanoseconds since 1970.
    pub(super) time_ns: i64,
    /// The index of the partition in its source.
    pub(super) partition: usize,
    pub(super) frames: Frames,
    /// True if the partition ends here.
    pub(super) ended: bool,
}
