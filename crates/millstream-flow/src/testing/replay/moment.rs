//! What a replay consists of: inputs, where they begin and end, and the batches in them.

use std::path::PathBuf;

use crate::batch::Kind;
use crate::framing::Frames;

/// Where a replay begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// With the record of this number; that makes sense where there is one input.
    Sequence(u64),
    /// With the first record of this time or later; nanoseconds since 1970.
    Time(u64),
}

/// The recorded input of one source.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    pub(super) source: String,
    pub(super) path: PathBuf,
    /// True for a journal whose records are frames as they are.
    pub(super) plain: bool,
}

/// What a flow sees of a recorded input.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) source: String,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) partitions: Vec<String>,
}

/// A batch to be read by a flow.
#[derive(Default)]
pub(super) struct Moment {
    /// Nanoseconds since 1970.
    pub(super) time_ns: i64,
    /// The place of the partition among those of its source.
    pub(super) partition: usize,
    pub(super) frames: Frames,
    /// True when the partition ends here.
    pub(super) ended: bool,
}
