//! Whether the control page agrees with the segments.
//!
//! A process that opens to write computes the page from the segments and writes it again. A reader may not do that, and
//! takes no lock: the page may be in use, or have been left by the last opening. So the reader accepts the page only if
//! the segments do not contradict it. Of two words that change one after the other, the one that changes last is read
//! first.

use super::listing::Listing;
use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::frame::Kind;
use crate::format::index;
use crate::format::published::Published;
use crate::format::segment::{Mark, Segment};
use crate::retain::start::Start;
use crate::storage::{Access, Storage};

/// What the segments confirm, independently of the control page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// Retention has left nothing before this segment.
    pub first_segment: u64,
    /// All records before this one survive a loss of power, unless records were cut since.
    pub durable: u64,
    /// The number of cuts so far.
    pub cuts: u64,
}

/// Compare the control page with the segments; `None` when it contradicts them.
///
/// # Errors
/// A segment that is missing, or cannot be opened.
pub(crate) fn agree<S: Storage>(
    storage: &S,
    control: &Control<S::Region>,
) -> Result<Option<Confirmed>> {
    let cuts = control.cuts();
    let claimed = (control.durable(), control.first_segment());
    let number = control.tail_segment();
    let listing = Listing::read(storage)?;
    listing.check(storage)?;
    let Some(&oldest) = listing.numbers.first() else {
        return Ok(None);
    };
    let first = listing.start.map_or(claimed.1, |start| start.segment);
    if listing.is_cut || claimed.1 > first || first < oldest || !listing.numbers.contains(&number) {
        return Ok(None);
    }
    let segment = Segment::open(storage, number, Access::Read)?;
    if control.segment_bytes() != segment.bytes_max() || !ends_at_tail(storage, control, &segment)?
    {
        return Ok(None);
    }
    let Some((durable, _)) = durable(storage, control, listing.start, first, number)? else {
        return Ok(None);
    };
    let known = Confirmed {
        first_segment: first,
        durable,
        cuts,
    };
    Ok((claimed.0 <= durable).then_some(known))
}

/// Whether the tail of the segment is at a frame, and the frames end there, except for those that are being appended
/// now.
fn ends_at_tail<S: Storage>(
    storage: &S,
    control: &Control<S::Region>,
    segment: &Segment<S::Region>,
) -> Result<bool> {
    let Some(base) = segment.base() else {
        return Ok(false);
    };
    let mut mark = segment.tail();
    if index::trace(segment, base, mark).is_none() {
        return Ok(false);
    }
    loop {
        let frame = match Published::at(segment, mark.offset) {
            Ok(None) => return Ok(true),
            Ok(Some(frame)) if frame.is_sound(base + mark.records) => frame,
            _ => return Ok(false),
        };
        if segment.tail().offset > mark.offset {
            // A writer is appending.
            return Ok(true);
        }
        if frame.kind == Kind::End {
            return Ok(is_rolling(storage, control, segment.number()));
        }
        mark = Mark {
            offset: mark.offset + frame.bytes(),
            records: mark.records + 1,
        };
    }
}

/// The segment has ended, and the control page calls it the last one: that is so in the middle of a roll, before the
/// next one has a record.
fn is_rolling<S: Storage>(storage: &S, control: &Control<S::Region>, number: u64) -> bool {
    // A missing segment is reported when the frames are followed.
    let next = Segment::open(storage, number + 1, Access::Read);
    let is_empty = next.is_ok_and(|next| next.head(next.data_start()) == Ok(None));
    is_empty || control.tail_segment() > number
}

/// The sequence number before which all is durable and the segment that says so: where the control page and a watermark
/// agree, or by the watermarks alone. `None` when a watermark is damaged.
pub(super) fn durable<S: Storage>(
    storage: &S,
    control: &Control<S::Region>,
    start: Option<Start>,
    first: u64,
    last: u64,
) -> Result<Option<(u64, u64)>> {
    let claimed = control.durable();
    let hint = control.durable_segment();
    let open = |number| match Segment::open(storage, number, Access::Read) {
        // Pruned meanwhile.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        segment => segment.map(Some),
    };
    for number in [hint, hint.wrapping_sub(1)] {
        if (first..=last).contains(&number)
            && let Some(segment) = open(number)?
            && watermark(storage, start, &segment) == Some(Ok(claimed))
        {
            return Ok(Some((claimed, number)));
        }
    }
    let oldest = open(first)?;
    let least = match oldest.as_ref().map(|segment| (segment, segment.base())) {
        Some((segment, Some(base))) if is_base(storage, start, segment, base) => base,
        Some((_, Some(_))) => return Ok(None),
        _ => 0,
    };
    let is_unsynced = oldest.is_some_and(|segment| watermark(storage, start, &segment).is_none());
    if hint == first && claimed <= least && is_unsynced {
        return Ok(Some((least, first)));
    }
    for number in (first..=last).rev() {
        if let Some(segment) = open(number)?
            && let Some(durable) = watermark(storage, start, &segment)
        {
            return Ok(durable.ok().map(|durable| (durable, number)));
        }
    }
    Ok(Some((least, first)))
}

/// The sequence number at the durable watermark of a segment that has one.
fn watermark<S: Storage>(
    storage: &S,
    start: Option<Start>,
    segment: &Segment<S::Region>,
) -> Option<std::result::Result<u64, ()>> {
    let base = segment.base()?;
    let mark = segment.durable();
    if mark.offset == 0 && mark.records == 0 {
        return None;
    }
    let is_there = index::trace(segment, base, mark).is_some()
        && (mark.records > 0 || is_base(storage, start, segment, base));
    Some(is_there.then_some(base + mark.records).ok_or(()))
}

/// Whether a segment begins with the record `base`: its frames say so, or the segment before it, or the start of the
/// journal.
pub(super) fn is_base<S: Storage>(
    storage: &S,
    start: Option<Start>,
    segment: &Segment<S::Region>,
    base: u64,
) -> bool {
    let number = segment.number();
    if let Some(start) = start
        && start.segment == number
    {
        return start.base == base;
    }
    let before = number.checked_sub(1);
    let before = before.map(|before| Segment::open(storage, before, Access::Read));
    match before {
        Some(Ok(before)) if index::end_time(&before, base).is_some() => true,
        // Nothing contradicts.
        Some(Err(_)) | None if segment.head(segment.data_start()) == Ok(None) => start.is_none(),
        _ => index::shows_base(segment, base),
    }
}
