//! The sparse index: for each block of 64 KiB of a segment, the first frame in or behind it.
//!
//! Writers note a block when they cross into it. An entry that is missing, or that no frame answers to, is found by hopping from
//! the one before and noted again: the index speeds up, and is never needed.

use crate::segment::{BLOCK, Mark, Segment};
use crate::storage::Region;

/// Note the blocks that begin between two frames.
#[inline]
pub(crate) fn note<R: Region>(segment: &Segment<R>, frame: u64, next: Mark) {
    if frame / BLOCK != next.offset / BLOCK {
        segment.set_slots(frame / BLOCK + 1..=next.offset / BLOCK, next);
    }
}

/// The frame of the record with this index in the segment, which is before `tail`. `None` when the frames before it are damaged.
pub(crate) fn find<R: Region>(
    segment: &Segment<R>,
    base: u64,
    tail: Mark,
    records: u64,
) -> Option<Mark> {
    let start = Mark {
        offset: segment.data_start(),
        records: 0,
    };
    let known = nearest(segment, base, tail, start, |mark| mark.records <= records);
    hop(segment, known, tail, |mark| mark.records == records)
        .or_else(|| hop(segment, start, tail, |mark| mark.records == records))
}

/// The first frame of the segment with a time of `time_ns` or later; `tail` when there is none.
pub(crate) fn find_time<R: Region>(
    segment: &Segment<R>,
    base: u64,
    tail: Mark,
    time_ns: u64,
) -> Option<Mark> {
    let start = Mark {
        offset: segment.data_start(),
        records: 0,
    };
    let known = nearest(segment, base, tail, start, |mark| {
        segment.time_ns(mark.offset) < time_ns
    });
    let late = |mark: Mark| mark.records == tail.records || segment.time_ns(mark.offset) >= time_ns;
    hop(segment, known, tail, late)
}

/// Whether a frame begins at `mark`, or the frames end there, and all from the nearest index entry on are sound.
pub(crate) fn is_mark<R: Region>(segment: &Segment<R>, base: u64, mark: Mark) -> bool {
    let start = Mark {
        offset: segment.data_start(),
        records: 0,
    };
    let mut at = nearest(segment, base, mark, start, |known| {
        known.records <= mark.records && known.offset <= mark.offset
    });
    while at.offset < mark.offset {
        match segment.head(at.offset) {
            Ok(Some(head)) if segment.is_sound(at.offset, head, base + at.records) => {
                at.offset += head.bytes();
                at.records += u64::from(head.kind == crate::frame::Kind::Record);
            }
            _ => return false,
        }
    }
    at == mark
}

/// The last index entry that is `early` and sound. Entries rise, so that halving finds it; unknown ones are passed over downwards.
fn nearest<R: Region>(
    segment: &Segment<R>,
    base: u64,
    tail: Mark,
    start: Mark,
    early: impl Fn(Mark) -> bool,
) -> Mark {
    let sound = |mark: Mark| {
        let within =
            mark.offset >= start.offset && mark.offset < tail.offset && mark.records < tail.records;
        let head = if within {
            segment.head(mark.offset).ok().flatten()
        } else {
            None
        };
        head.is_some_and(|head| segment.is_sound(mark.offset, head, base + mark.records))
    };
    let (mut low, mut high) = (
        start.offset / BLOCK,
        tail.offset.min(segment.bytes() - 1) / BLOCK + 1,
    );
    let mut best = start;
    while low < high {
        let middle = low + (high - low) / 2;
        let known = (low..=middle)
            .rev()
            .find_map(|block| segment.slot(block).filter(|mark| sound(*mark)));
        match known {
            Some(mark) if early(mark) => {
                best = mark;
                low = middle + 1;
            }
            Some(_) => high = middle,
            None => low = middle + 1,
        }
    }
    best
}

/// Hop from frame to frame until `found`, and note the blocks on the way that the index lacks.
fn hop<R: Region>(
    segment: &Segment<R>,
    from: Mark,
    tail: Mark,
    found: impl Fn(Mark) -> bool,
) -> Option<Mark> {
    let mut at = from;
    while !found(at) {
        let head = segment.head(at.offset).ok().flatten()?;
        let next = Mark {
            offset: at.offset + head.bytes(),
            records: at.records + 1,
        };
        if head.kind == crate::frame::Kind::End || next.offset > tail.offset {
            return None;
        }
        if segment.region().is_writable() && segment.slot(next.offset / BLOCK).is_none() {
            note(segment, at.offset, next);
        }
        at = next;
    }
    Some(at)
}
