//! The sparse index: for each block of 64 KiB of a segment, the first frame in or after it.
//!
//! Writers note a block when they cross into it. An entry that is missing or matches no frame is computed from the
//! frames after the entry before it, and stored again: the index is an optimisation, and is never needed.

use crate::format::frame::{Head, Kind};
use crate::format::published::Published;
use crate::format::segment::{BLOCK, Mark, Segment};
use crate::storage::Region;

/// How many frames are examined to find with which record a segment begins.
const FEW: u32 = 8;

/// Note the blocks that begin between two frames.
#[inline]
pub(crate) fn note<R: Region>(segment: &Segment<R>, frame: u64, next: Mark) {
    if frame / BLOCK != next.offset / BLOCK {
        segment.set_slots(frame / BLOCK + 1..=next.offset / BLOCK, next);
    }
}

/// The frame of the record with this index in the segment, which is before `tail`. `None` when the frames before it are
/// damaged.
pub(crate) fn find<R: Region>(
    segment: &Segment<R>,
    base: u64,
    tail: Mark,
    records: u64,
) -> Option<Mark> {
    let start = first(segment);
    let known = nearest(segment, base, tail, start, |mark| mark.records <= records);
    hop(segment, known, tail, |mark| mark.records == records)
        .or_else(|| hop(segment, start, tail, |mark| mark.records == records))
}

/// The frames of a segment that is searched by time.
pub(crate) struct TimeSearch<'a, R> {
    pub segment: &'a Segment<R>,
    pub base: u64,
    /// The end of a segment that has not ended.
    pub tail: Option<Mark>,
    /// Times do not decrease.
    pub is_ordered: bool,
}

impl<R: Region> TimeSearch<'_, R> {
    /// The first frame with a time of `time_ns` or later; the end of the frames when there is none.
    ///
    /// # Errors
    /// The offset of the frame that is damaged.
    pub fn first_from(&self, time_ns: u64) -> Result<Mark, u64> {
        if self.is_ordered {
            find_time(self.segment, self.base, self.tail, time_ns)
        } else {
            let mut found = None;
            let end = self.each(|mark, of_ns| {
                found = (of_ns >= time_ns).then_some(mark);
                found.is_none()
            })?;
            Ok(found.unwrap_or(end))
        }
    }

    /// The mark after the last frame with a time before `time_ns`; `None` when there is none.
    ///
    /// # Errors
    /// The offset of the frame that is damaged.
    pub fn last_before(&self, time_ns: u64) -> Result<Option<Mark>, u64> {
        if self.is_ordered {
            let found = find_time(self.segment, self.base, self.tail, time_ns)?;
            // The frame that is not before the time decides, too.
            let follows = Published::at(self.segment, found.offset).ok().flatten();
            let is_sound = follows.is_some_and(|frame| is_sound(&frame, self.base, found));
            return if is_sound || self.tail == Some(found) {
                Ok((found.records > 0).then_some(found))
            } else {
                Err(found.offset)
            };
        }
        let mut found = None;
        let mut is_last = false;
        let end = self.each(|mark, of_ns| {
            if is_last {
                found = Some(mark);
            }
            is_last = of_ns < time_ns;
            true
        })?;
        Ok(if is_last { Some(end) } else { found })
    }

    /// Whether the segment has ended, and this is its end.
    pub fn is_end(&self, mark: Mark) -> bool {
        let frame = Published::at(self.segment, mark.offset).ok().flatten();
        self.tail.is_none()
            && frame
                .is_some_and(|frame| frame.kind == Kind::End && is_sound(&frame, self.base, mark))
    }

    /// Calls `go_on` with each record and its time, in their order, until that says no. Where times decrease no frame
    /// shows what those before it have, so that each is compared with its checksum. Returns the end of the frames that
    /// were read.
    fn each(&self, mut go_on: impl FnMut(Mark, u64) -> bool) -> Result<Mark, u64> {
        let segment = self.segment;
        let base = self.base;
        let mut at = first(segment);
        while Some(at) != self.tail {
            match Published::at(segment, at.offset) {
                Ok(Some(frame)) if is_sound(&frame, base, at) => {
                    let is_end = frame.kind == Kind::End && self.tail.is_none();
                    if is_end || !go_on(at, frame.time_ns()) {
                        break;
                    }
                    at = step(segment, at, *frame);
                }
                _ => return Err(at.offset),
            }
        }
        Ok(at)
    }
}

/// The latest time of all records before `mark`, the last of which in this segment has the time `last`, if there is
/// one. `before` returns that of the segments before.
pub(crate) fn latest_to<R: Region>(
    segment: &Segment<R>,
    base: u64,
    mark: Mark,
    last: Option<u64>,
    before: impl FnOnce() -> crate::error::Result<u64>,
) -> crate::error::Result<u64> {
    let own = if segment.is_ordered() {
        last
    } else {
        latest_time(segment, base, mark)
    };
    match own {
        // A segment that is damaged says nothing of its times.
        Some(own) => Ok(before().map_or(own, |before| before.max(own))),
        None => before(),
    }
}

/// The latest time of the sound records of a segment before `end`, which is the mark of a frame or the end of the
/// frames.
#[cold]
pub(crate) fn latest_time<R: Region>(segment: &Segment<R>, base: u64, end: Mark) -> Option<u64> {
    let mut at = first(segment);
    let mut latest = None;
    while at.offset < end.offset
        && let Ok(Some(frame)) = Published::at(segment, at.offset)
    {
        if frame.kind == Kind::Record && is_sound(&frame, base, at) {
            latest = latest.max(Some(frame.time_ns()));
        }
        at.offset += frame.bytes();
        at.records += 1;
    }
    latest
}

/// [`TimeSearch::first_from`] where times do not decrease. The last frame that is skipped decides, and its checksum
/// confirms its time.
fn find_time<R: Region>(
    segment: &Segment<R>,
    base: u64,
    tail: Option<Mark>,
    time_ns: u64,
) -> Result<Mark, u64> {
    let start = first(segment);
    let limit = tail.unwrap_or(unknown_end(segment));
    let known = nearest(segment, base, limit, start, |mark| {
        segment.time_ns(mark.offset) < time_ns
    });
    let mut at = known;
    let mut passed = None;
    while Some(at) != tail {
        let frame = match Published::at(segment, at.offset) {
            Ok(Some(frame)) if at.offset < limit.offset => frame,
            _ => return Err(first_fault(segment, base, known)),
        };
        if frame.kind == Kind::End && tail.is_none() || segment.time_ns(at.offset) >= time_ns {
            break;
        }
        passed = Some((at, frame));
        at = step(segment, at, *frame);
    }
    match passed {
        Some((mark, frame)) if !is_sound(&frame, base, mark) => {
            Err(first_fault(segment, base, known))
        }
        _ => Ok(at),
    }
}

/// The offset at which the frames stop being sound records, from a mark on.
#[cold]
fn first_fault<R: Region>(segment: &Segment<R>, base: u64, from: Mark) -> u64 {
    sound_from(segment, base, from).offset
}

fn sound_from<R: Region>(segment: &Segment<R>, base: u64, from: Mark) -> Mark {
    let mut at = from;
    while let Ok(Some(frame)) = Published::at(segment, at.offset)
        && frame.kind == Kind::Record
        && is_sound(&frame, base, at)
    {
        at.offset += frame.bytes();
        at.records += 1;
    }
    at
}

/// The time of the last record before `mark`, if there is one, when the frames from the nearest index entry on lead to
/// `mark`, and the last of them is sound. Its checksum covers its number and its length, so the mark is right even if a
/// record before it is damaged: the reader of that record gets the error.
pub(crate) fn trace<R: Region>(segment: &Segment<R>, base: u64, mark: Mark) -> Option<Option<u64>> {
    let mut at = nearest(segment, base, mark, first(segment), |known| {
        known.records <= mark.records && known.offset <= mark.offset
    });
    let mut last = None;
    while at.offset < mark.offset {
        let frame = Published::at(segment, at.offset).ok()??;
        if frame.kind == Kind::End {
            return None;
        }
        last = Some((at, frame));
        at.offset += frame.bytes();
        at.records += 1;
    }
    if at != mark {
        return None;
    }
    match last {
        None => Some(None),
        Some((at, frame)) => is_sound(&frame, base, at).then(|| Some(segment.time_ns(at.offset))),
    }
}

/// The latest time of the records up to the end of a segment, when its end frame says that `next` follows. The end
/// frame's checksum covers both.
pub(crate) fn end_time<R: Region>(segment: &Segment<R>, next: u64) -> Option<u64> {
    let at = segment.tail().offset;
    if at < segment.data_start() {
        return None;
    }
    let frame = Published::at(segment, at).ok()??;
    let is_end = frame.kind == Kind::End && frame.is_sound(next);
    is_end.then(|| segment.time_ns(at))
}

/// The end of a segment that has ended, and the latest time of the records up to there. `None` when it cannot be found.
pub(crate) fn ended<R: Region>(segment: &Segment<R>, base: u64) -> Option<(Mark, u64)> {
    let tail = segment.tail();
    if let Some(time_ns) = end_time(segment, base.wrapping_add(tail.records)) {
        return Some((tail, time_ns));
    }
    let end = sound_end(segment, base);
    let frame = Published::at(segment, end.offset).ok()??;
    let is_end = frame.kind == Kind::End && is_sound(&frame, base, end);
    is_end.then(|| (end, segment.time_ns(end.offset)))
}

/// The time of the last record of a segment that has ended.
pub(crate) fn last_time<R: Region>(segment: &Segment<R>, base: u64) -> Option<u64> {
    let (end, _) = ended(segment, base)?;
    trace(segment, base, end).flatten()
}

/// Where the frames stop being sound records. The index is not used: it may refer to frames of a batch that was never
/// published.
#[cold]
pub(crate) fn sound_end<R: Region>(segment: &Segment<R>, base: u64) -> Mark {
    sound_from(segment, base, first(segment))
}

/// Whether the first frame is that of the record `base`. A long one is not examined.
pub(crate) fn begins_with<R: Region>(segment: &Segment<R>, base: u64) -> bool {
    let start = first(segment);
    matches!(Published::at(segment, start.offset), Ok(Some(frame)) if frame.bytes() <= BLOCK && is_sound(&frame, base, start))
}

/// Whether some frame confirms that the segment begins with the record `base`: one of the first few, or one in the
/// index.
pub(crate) fn shows_base<R: Region>(segment: &Segment<R>, base: u64) -> bool {
    let mut at = first(segment);
    for _ in 0..FEW {
        match Published::at(segment, at.offset) {
            Ok(Some(frame)) if is_sound(&frame, base, at) => return true,
            Ok(Some(frame)) => {
                at.offset += frame.bytes();
                at.records += 1;
            }
            _ => break,
        }
    }
    let start = first(segment);
    nearest(segment, base, unknown_end(segment), start, |_| true) != start
}

/// Before the first frame.
fn first<R: Region>(segment: &Segment<R>) -> Mark {
    Mark {
        offset: segment.data_start(),
        records: 0,
    }
}

/// A mark after all that a segment can hold, for a segment whose end is not known.
pub(crate) fn unknown_end<R: Region>(segment: &Segment<R>) -> Mark {
    Mark {
        offset: segment.bytes(),
        records: u32::MAX.into(),
    }
}

/// Whether the frame at `mark` is sound.
fn is_sound<R: Region>(frame: &Published<'_, R>, base: u64, mark: Mark) -> bool {
    frame.is_sound(base.wrapping_add(mark.records))
}

/// The last index entry that is `early` and sound. Entries rise, so that halving finds it; unknown ones are skipped
/// downwards.
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
        let frame = if within {
            Published::at(segment, mark.offset).ok().flatten()
        } else {
            None
        };
        frame.is_some_and(|frame| is_sound(&frame, base, mark))
    };
    let mut low = start.offset / BLOCK;
    let mut high = tail.offset.min(segment.bytes() - 1) / BLOCK + 1;
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
        let frame = Published::at(segment, at.offset).ok().flatten()?;
        if frame.kind == Kind::End || at.offset + frame.bytes() > tail.offset {
            return None;
        }
        at = step(segment, at, *frame);
    }
    Some(at)
}

/// The mark after a frame; a block between the two that the index lacks is noted.
fn step<R: Region>(segment: &Segment<R>, at: Mark, head: Head) -> Mark {
    let next = Mark {
        offset: at.offset + head.bytes(),
        records: at.records + 1,
    };
    if segment.region().is_writable() && segment.slot(next.offset / BLOCK).is_none() {
        note(segment, at.offset, next);
    }
    next
}
