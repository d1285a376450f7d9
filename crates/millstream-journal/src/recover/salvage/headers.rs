//! Opening a segment with any header.

use super::frames::{sound_from, sound_head};
use crate::format::frame;
use crate::format::published::Published;
use crate::format::segment::{self, Segment};
use crate::recover::verify::Damage;
use crate::retain::start::Start;
use crate::storage::{Access, Region, Storage};

/// The number of first frames, two of which determine the epoch.
const FEW: u32 = 64;
/// The shortest file that can hold a frame.
const BYTES_MIN: u64 = 4096 + frame::HEADER;

/// A segment that was opened with any header.
pub(super) struct SalvagedSegment<R> {
    pub segment: Segment<R>,
    /// The offset of the first frame.
    pub from: u64,
    /// The number of the first record.
    pub base: u64,
}

/// The result of opening a segment.
pub(super) struct OpenedSegment<R> {
    /// `None` when no frame in it can be read, or none was written.
    pub part: Option<SalvagedSegment<R>>,
    pub damages: Vec<Damage>,
}

/// Open the segment `number`. Its first record is `expected`, or the one in its header, or the one in the start of the
/// journal.
pub(super) fn open<S: Storage>(
    storage: &S,
    number: u64,
    start: Option<Start>,
    expected: Option<u64>,
) -> OpenedSegment<S::Region> {
    let file = segment::name(number);
    let mut damages = Vec::new();
    let mut note = |offset, what: &str| {
        damages.push(Damage {
            path: storage.path(&file),
            offset,
            what: what.to_owned(),
            records: None,
        });
    };
    let region = match region(storage, &file) {
        Ok(region) => region,
        Err((offset, what)) => {
            note(offset, &what);
            return OpenedSegment {
                part: None,
                damages,
            };
        }
    };
    if let Err(error) = Segment::open(storage, number, Access::Read) {
        let damage = Damage::of(error, storage, &file);
        note(damage.offset, &damage.what);
    }
    let own = Some(region.load(segment::BASE)).filter(|base| *base != u64::MAX);
    let of_start = start.filter(|start| start.segment == number);
    let of_start = of_start.map(|start| start.base);
    let mut bases: Vec<u64> = [expected, own, of_start].into_iter().flatten().collect();
    bases.dedup();
    let was_begun = own.is_some();
    let (segment, from, is_sound) = Segment::salvaged(region, number);
    let (found, segment) = if is_sound {
        (first_base(&segment, from, &bases), segment)
    } else {
        base_and_epoch(segment, from, &bases)
    };
    if let Some(base) = found {
        if own != Some(base) {
            note(
                segment::BASE,
                &format!("the segment begins with record {base}"),
            );
        }
        return OpenedSegment {
            part: Some(SalvagedSegment {
                segment,
                from,
                base,
            }),
            damages,
        };
    }
    let is_empty = (from..segment.bytes())
        .step_by(8)
        .all(|at| segment.region().load(at) == 0);
    if !is_empty {
        note(from, "no record of the segment can be read");
    } else if was_begun && segment.tail().records > 0 {
        note(from, "the frames that were written are missing");
    }
    OpenedSegment {
        part: None,
        damages,
    }
}

/// The file, if it is long enough to hold a frame; otherwise where it is at fault, and how.
fn region<S: Storage>(storage: &S, file: &str) -> Result<S::Region, (u64, String)> {
    match storage.open(file, Access::Read) {
        Ok(region) if region.bytes_len() >= BYTES_MIN => Ok(region),
        Ok(region) => {
            let what = "the file ends in its header".to_owned();
            Err((region.bytes_len(), what))
        }
        Err(source) => Err((0, source.to_string())),
    }
}

/// The first base for which the first frame is sound.
fn first_head<R: Region>(segment: &Segment<R>, from: u64, bases: &[u64]) -> Option<u64> {
    let begins = |base: &&u64| sound_head(segment, from, **base).is_some();
    bases.iter().find(begins).copied()
}

/// The first base for which some frame is sound.
fn first_base<R: Region>(segment: &Segment<R>, from: u64, bases: &[u64]) -> Option<u64> {
    let follows = |base: &&u64| sound_from(segment, from, from, **base).is_some();
    first_head(segment, from, bases).or_else(|| bases.iter().find(follows).copied())
}

/// [`first_base`], and the epoch, where the header does not say it.
fn base_and_epoch<R: Region>(
    segment: Segment<R>,
    from: u64,
    bases: &[u64],
) -> (Option<u64>, Segment<R>) {
    // The first frame says whether the epoch in the header is damaged too.
    if let Some(base) = first_head(&segment, from, bases) {
        return (Some(base), segment);
    }
    let told = bases
        .iter()
        .find_map(|base| Some((*base, epoch_of_frames(&segment, from, *base)?)));
    match told {
        Some((base, epoch)) => (Some(base), segment.with_epoch(epoch)),
        None => (None, segment),
    }
}

/// The epoch of two consecutive frames, or one that has the same effect on checksums.
fn epoch_of_frames<R: Region>(segment: &Segment<R>, from: u64, base: u64) -> Option<u64> {
    let mut at = from;
    let mut sequence = base;
    for _ in 0..FEW {
        let frame = Published::at(segment, at).ok()??;
        let next = at + frame.bytes();
        let epoch = frame.epoch_for(sequence)?;
        let next_frame = Published::at(segment, next).ok()??;
        if next_frame.is_sound_in(epoch, sequence + 1) {
            return Some(epoch);
        }
        (at, sequence) = (next, sequence + 1);
    }
    None
}
