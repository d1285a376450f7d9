//! Removing old records: complete segments, from the front, never the one that is appended to.

use std::io;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::frame::Kind;
use crate::format::published::Published;
use crate::format::segment::{self, Segment};
use crate::format::{files, index};
use crate::options::Retention;
use crate::read::cursor_file;
use crate::retain::start::{self, Start};
use crate::storage::Storage;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// How many segments.
    pub segments: u64,
    /// How many bytes they took on the disk.
    pub bytes: u64,
    /// How many bytes of that were frames: headers, bodies and padding.
    pub frame_bytes: u64,
    /// The sequence number of the oldest record that is left.
    pub first: u64,
}

/// Remove what `retention` allows.
pub(crate) fn prune<S: Storage>(core: &Core<S>, retention: &Retention) -> Result<Pruned> {
    if core.options.read_only {
        return Err(Error::ReadOnly { path: core.path() });
    }
    let control = core.control()?;
    let from = control.first_segment();
    let to = keep_from(core, retention, from)?;
    if to == from {
        return Ok(Pruned {
            first: core.first()?,
            ..Pruned::default()
        });
    }
    // Another process may be pruning too.
    let mut bytes = 0;
    let mut frame_bytes = 0;
    for segment in (from..to).filter_map(|number| core.segment(number).ok()) {
        let end = core.ended(&segment).map_or(0, |(end, _)| end.offset);
        bytes += segment.bytes();
        frame_bytes += end.saturating_sub(segment.data_start());
    }
    // On the disk before any file goes: what is missing from there on is lost, not pruned.
    start::raise(&core.storage, &core.options, start(core, to)?)?;
    // Readers are notified first, so that a missing file is never taken for damage.
    control.raise_first_segment(to);
    // From the oldest file on: a prune before this one may have been interrupted, and must leave no gap.
    let oldest = files::segments(&core.storage)?;
    for number in oldest.into_iter().take_while(|number| *number < to) {
        remove(core, number)?;
    }
    // Not before: an interrupted prune leaves segments that the next sync must not skip.
    control.raise_durable_segment(to);
    Ok(Pruned {
        segments: to - from,
        bytes,
        frame_bytes,
        first: core.first()?,
    })
}

/// The start of a journal whose oldest segment is `number`.
fn start<S: Storage>(core: &Core<S>, number: u64) -> Result<Start> {
    let segment = core.segment(number)?;
    let base = core.base(&segment)?;
    Ok(Start {
        segment: number,
        base,
        time_ns: core.latest_before(&segment, base)?.unwrap_or(0),
    })
}

/// Remove the oldest segment, and sync that before the next one is removed: a loss of power must leave no gap.
fn remove<S: Storage>(core: &Core<S>, number: u64) -> Result<()> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    // The number of the first record that is left must not follow only from those that go.
    if number + 1 >= core.control()?.durable_segment() {
        match core.segment(number + 1) {
            // Another process is pruning too, and is ahead.
            Err(Error::Io { source, .. }) if gone(&source) => {}
            next => {
                let next = next?;
                core.sync(&next, 0, next.data_start())?;
            }
        }
    }
    let name = segment::name(number);
    let failed = |source| Error::Io {
        verb: "remove",
        path: core.storage.path(&name),
        source,
    };
    match core.storage.remove(&name) {
        Err(error) if gone(&error) => Ok(()),
        removed => removed.map_err(failed).and_then(|()| core.sync_names()),
    }
}

/// The number of the first segment to keep.
fn keep_from<S: Storage>(core: &Core<S>, retention: &Retention, from: u64) -> Result<u64> {
    let tail = core.tail_segment();
    let needed = if retention.keep_for_cursors {
        cursor_file::list(core)?
            .into_iter()
            .map(|cursor| cursor.position)
            .min()
    } else {
        None
    };
    let limits = retention.bytes.is_some() || retention.age.is_some();
    if !limits && needed.is_none() {
        return Ok(from);
    }
    let now = core.options.host.time_ns();
    for number in from..tail {
        let segment = core.segment(number)?;
        let next = core.base(&*core.segment(number + 1)?)?;
        let in_use = needed.is_some_and(|needed| needed < next);
        // Those that are smaller, since they grow, count as much.
        let bytes = (tail + 1 - number) * core.segment_bytes;
        let too_many = retention.bytes.is_some_and(|most| bytes > most);
        let too_old = match retention.age {
            Some(most) => {
                let written = last_written(core, &segment, now)?;
                u128::from(now.saturating_sub(written)) > most.as_nanos()
            }
            None => false,
        };
        if in_use || (limits && !too_many && !too_old) {
            return Ok(number);
        }
    }
    Ok(tail)
}

/// When the last record of a segment that has ended was appended, as far as times show: the latest time in it. One in
/// the future is that of a clock that was ahead, and has been put right: then it was before the first record of the
/// next segment that begins with a time of the past.
fn last_written<S: Storage>(core: &Core<S>, segment: &Segment<S::Region>, now: u64) -> Result<u64> {
    let (end, latest) = core.ended(segment)?;
    let base = core.base(segment)?;
    let own = if segment.is_ordered() {
        index::last_time(segment, base)
    } else {
        index::latest_time(segment, base, end)
    };
    let own = own.unwrap_or(latest);
    if own <= now {
        return Ok(own);
    }
    for number in segment.number() + 1..=core.tail_segment() {
        let later = core.segment(number)?;
        let first = Published::at(&later, later.data_start()).ok().flatten();
        let first = first.filter(|frame| frame.kind == Kind::Record);
        if let Some(time_ns) = first
            .map(|frame| frame.time_ns())
            .filter(|time| *time <= now)
        {
            return Ok(time_ns);
        }
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Journal, Options};

    #[test]
    fn a_search_continues_while_another_process_prunes_its_segments() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::default().with_segment_bytes(64 << 10);
        let journal = Journal::open(folder.path().join("j"), options).unwrap();
        journal
            .writer()
            .unwrap()
            .append_many(vec![[7_u8; 1000]; 1_000])
            .unwrap();
        let everything = Retention {
            bytes: Some(64 << 10),
            ..Retention::default()
        };
        for reader in [Options::read_only(), Options::default()] {
            let other = Journal::open(journal.path(), reader).unwrap();
            let next = Cell::new(journal.first().unwrap());
            let found = other.core().last_segment(|_, base| {
                if next.get() < journal.next().unwrap() - 100 {
                    // The oldest segments go while they are searched.
                    let removed = journal.prune(&everything).unwrap();
                    next.set(removed.first);
                }
                Ok(base <= 50)
            });
            let first = journal.first().unwrap();
            assert!(first > 900);
            assert_eq!(other.core().base(&found.unwrap()).unwrap(), first);
            let sought = other.reader().unwrap().seek(50);
            let is_named = matches!(sought, Err(Error::Pruned { sequence: 50, .. }));
            assert!(is_named, "{sought:?}");
        }
    }
}
