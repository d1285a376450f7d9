//! Finding sound frames in a segment that is damaged.

use crate::format::frame::{self, Head};
use crate::format::published::Published;
use crate::format::segment::{Mark, Segment};
use crate::storage::Region;

/// The head of a sound frame.
pub(super) fn sound_head<R: Region>(
    segment: &Segment<R>,
    offset: u64,
    sequence: u64,
) -> Option<Head> {
    let frame = Published::at(segment, offset).ok()??;
    frame.is_sound(sequence).then_some(*frame)
}

/// The next sound frame after the one at `offset`, which should have been `sequence`: its offset, and its number in
/// `records`.
pub(super) fn next_sound<R: Region>(
    segment: &Segment<R>,
    offset: u64,
    sequence: u64,
) -> Option<Mark> {
    // Most often the head is sound and says where the next frame begins.
    if let Ok(Some(head)) = segment.head(offset) {
        let next = Mark {
            offset: offset + head.bytes(),
            records: sequence + 1,
        };
        if sound_head(segment, next.offset, next.records).is_some() {
            return Some(next);
        }
    }
    sound_from(segment, offset, offset + 8, sequence)
}

/// The first sound frame at `from` or later, when a frame at `offset` would be `sequence`. Each record that was lost
/// between took a header at least.
pub(super) fn sound_from<R: Region>(
    segment: &Segment<R>,
    offset: u64,
    from: u64,
    sequence: u64,
) -> Option<Mark> {
    let last = segment.bytes().saturating_sub(frame::HEADER);
    (from..=last).step_by(8).find_map(|at| {
        let frame = Published::at(segment, at).ok()??;
        let body_crc = frame.body_crc();
        let most = sequence.saturating_add((at - offset) / frame::HEADER);
        (sequence..=most)
            .find(|records| frame.has_checksum(body_crc, *records))
            .map(|records| Mark {
                offset: at,
                records,
            })
    })
}
