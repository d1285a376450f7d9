//! The positions of a durable source in its own terms, when its partitions are read by other processes from now on.

use std::path::Path;

use super::input_position::InputPosition;
use super::recorded::Recorded;
use crate::error::Cause;
use crate::source::Position;

/// The position of a partition whose recorded input is all processed.
pub(crate) struct OwnPosition {
    /// The source's own position; `None` if it has none, or nothing was read.
    pub(crate) position: Option<Position>,
    /// Whether the partition has ended.
    pub(crate) has_ended: bool,
}

/// Returns the source's own position of a partition that was committed at `committed`, the position of a record in the
/// journal `path`.
///
/// # Errors
/// Recorded input after that position is not processed; the journal is damaged.
pub(crate) fn own_position(
    path: &Path,
    partition: &str,
    committed: &Position,
) -> Result<OwnPosition, Cause> {
    let committed = InputPosition::of(committed)?;
    let mut all = Recorded::open(path)?.partition(partition);
    let mut position = None;
    let mut waiting = 0;
    while let Some(batch) = all.next_batch()? {
        position = batch.position().or(position);
        let is_processed = committed.record().is_none_or(|last| batch.sequence <= last);
        if !is_processed {
            waiting += batch.items().len();
        }
    }
    if waiting > 0 {
        return Err(format!(
            "{}: {waiting} recorded items of partition \"{partition}\" are not processed; start the flow once more as before, and stop it \
             when they are",
            path.display()
        )
        .into());
    }
    Ok(OwnPosition {
        position,
        has_ended: matches!(committed, InputPosition::End(_)),
    })
}

/// The position of a partition that has ended, in a process that has no record of it.
pub(crate) fn ended() -> Position {
    InputPosition::End(None).into()
}
