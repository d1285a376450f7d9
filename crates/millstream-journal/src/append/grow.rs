//! Segments of several sizes: each has twice the size of the one before, up to the size that the journal is opened
//! with. A journal with few records is small, and one with many has few files.
//!
//! A journal can also have a *spare*: a small segment in reserve, allocated on the disk. Records that free space go
//! there when the disk has no room for another segment.
//!
//! The invariant: only an exclusive opening creates segments of several sizes. A segment that was created and not begun
//! therefore belongs to this opening, and can be removed when it is too small for the next record.

use std::io;

use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::files::SPARE;
use crate::format::segment::{self, SMALL_BYTES_MIN, Segment, Size};
use crate::storage::{Access, Region, Storage};

/// Its name until it is complete.
const DRAFT: &str = "draft-spare";
const SPARE_BYTES: u64 = SMALL_BYTES_MIN;

/// Make the segment of this number, for a first frame of up to `frame_bytes`. On a full disk a smaller one must do, if
/// there is room for that.
pub(crate) fn create<S: Storage>(
    core: &Core<S>,
    number: u64,
    frame_bytes: u64,
) -> Result<SegmentOf<S>> {
    let wanted = size_after(core, number, frame_bytes)?;
    match create_sized(core, number, wanted) {
        Err(Error::DiskFull { .. }) if core.options.segment_bytes_first.is_some() => {
            let least = large_enough(core.options.size_of_first().bytes, core, frame_bytes);
            create_sized(core, number, least)
        }
        created => created,
    }
}

/// Create the segment of this number with the smallest possible size.
pub(crate) fn create_small<S: Storage>(core: &Core<S>, number: u64) -> Result<SegmentOf<S>> {
    create_sized(core, number, large_enough(SPARE_BYTES, core, 0))
}

fn create_sized<S: Storage>(core: &Core<S>, number: u64, size: Size) -> Result<SegmentOf<S>> {
    let host = &core.options.host;
    let made = Segment::create(&core.storage, number, size, host.random(), host.time_ns());
    made.map(|segment| core.share_segment(segment))
}

/// The size of the segment of this number, by that of the one before.
fn size_after<S: Storage>(core: &Core<S>, number: u64, frame_bytes: u64) -> Result<Size> {
    let Some(first) = core.options.segment_bytes_first else {
        return Ok(Size::full(core.segment_bytes));
    };
    let last = match number.checked_sub(1) {
        Some(before) => core.segment(before)?.bytes(),
        None => 0,
    };
    Ok(large_enough((last * 2).max(first), core, frame_bytes))
}

/// A size from `bytes` on in which the frame has room, if any segment of the journal can have it.
fn large_enough<S: Storage>(bytes: u64, core: &Core<S>, frame_bytes: u64) -> Size {
    let mut size = Size {
        bytes: bytes.min(core.segment_bytes),
        bytes_max: core.segment_bytes,
    };
    while size.bytes < size.bytes_max && !size.holds(frame_bytes) {
        size.bytes = (size.bytes * 2).min(size.bytes_max);
    }
    size
}

/// Remove a segment that was made and not begun, if there is one.
pub(crate) fn remove<S: Storage>(core: &Core<S>, number: u64) -> Result<()> {
    core.forget_from(number);
    let name = segment::name(number);
    match core.storage.remove(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed
            .and_then(|()| core.storage.sync_names())
            .map_err(|source| failed(core, "remove", &name, source)),
    }
}

/// Whether there is a spare.
pub(crate) fn has_spare<S: Storage>(core: &Core<S>) -> Result<bool> {
    match core.storage.open(SPARE, Access::Write) {
        Ok(spare) => Ok(spare.bytes_len() >= SPARE_BYTES),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(failed(core, "open", SPARE, error)),
    }
}

/// Create the spare, if there is none.
pub(crate) fn reserve<S: Storage>(core: &Core<S>) -> Result<()> {
    let storage = &core.storage;
    match storage.open(SPARE, Access::Write) {
        Ok(spare) if spare.bytes_len() >= SPARE_BYTES => return Ok(()),
        // A loss of power has taken its room.
        Ok(_) => storage.remove(SPARE),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => storage.remove(SPARE),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
    .map_err(|source| failed(core, "open", SPARE, source))?;
    let made = storage.create(DRAFT, SPARE_BYTES).and_then(|region| {
        region.sync(0, SPARE_BYTES)?;
        storage.rename(DRAFT, SPARE)?;
        storage.sync_names()
    });
    made.map_err(|source| {
        // It may be there or not.
        let _removed = storage.remove(DRAFT);
        failed(core, "create", SPARE, source)
    })
}

/// The spare becomes the segment of this number, not begun.
pub(crate) fn take_spare<S: Storage>(core: &Core<S>, number: u64) -> Result<SegmentOf<S>> {
    let storage = &core.storage;
    let host = &core.options.host;
    let size = large_enough(SPARE_BYTES, core, 0);
    let spare = match storage.open(SPARE, Access::Write) {
        Ok(spare) if spare.bytes_len() >= size.bytes => spare,
        opened => {
            let source = opened.map_or_else(|error| error, |_| io::ErrorKind::UnexpectedEof.into());
            let is_missing = matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
            );
            let source = if is_missing {
                io::Error::new(io::ErrorKind::StorageFull, "there is no segment in reserve")
            } else {
                source
            };
            return Err(failed(core, "open", SPARE, source));
        }
    };
    remove(core, number)?;
    let headed = Segment::headed(spare, number, size, host.random(), host.time_ns());
    let segment = Segment::named(storage, headed, SPARE, &segment::name(number))?;
    Ok(core.share_segment(segment))
}

fn failed<S: Storage>(core: &Core<S>, verb: &'static str, name: &str, source: io::Error) -> Error {
    let path = core.storage.path(name);
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path, source }
        }
        _ => Error::Io { verb, path, source },
    }
}
