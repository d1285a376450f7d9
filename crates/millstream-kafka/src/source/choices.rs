//! What a user chooses: where to begin, where to end, and what the frames hold.

use std::collections::BTreeMap;

/// Where a partition begins that the flow has not read before.
///
/// A partition that is added to a topic later begins with its oldest message, whatever is chosen here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the oldest message.
    #[default]
    Earliest,
    /// With the first message that arrives after the start.
    Latest,
    /// With the first message of this time or later, in milliseconds since 1970.
    Time(i64),
    /// At the offset that the group has committed; without one, with the oldest message.
    Group,
    /// At these offsets, by topic and partition; all other partitions begin with the oldest message.
    Offsets(BTreeMap<(String, i32), i64>),
}

/// Where the reading ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// Nowhere: the source waits for messages.
    #[default]
    Never,
    /// Before the first message that is not there, or not committed, when the flow starts.
    Latest,
    /// Before the first message of this time or later, in milliseconds since 1970, and no later than
    /// [`Latest`](Self::Latest).
    Time(i64),
}

/// What the frames of the source hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Message,
    Value,
}
