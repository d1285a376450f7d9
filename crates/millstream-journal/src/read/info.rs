//! A summary of a journal.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::append::lock;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::control;
use crate::format::segment::VERSION;
use crate::read::cursor_file::{self, CursorInfo};
use crate::storage::Storage;

/// A summary of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The directory.
    pub path: PathBuf,
    /// The version of the format.
    pub version: u32,
    /// The sequence number of the oldest record.
    pub first: u64,
    /// The sequence number that the next record gets.
    pub next: u64,
    /// All records before this one survive a loss of power.
    pub durable: u64,
    /// How many segments hold records, or are about to.
    pub segments: u64,
    /// The size of each of them, or the size that they grow to.
    pub segment_bytes: u64,
    /// The sizes of these segments together: what they take on the disk, however little of it is filled.
    pub disk_bytes: u64,
    /// Bytes of frames in all segments: headers, bodies and padding.
    pub bytes: u64,
    /// The times of the oldest and the newest record, in ns since 1970.
    pub times_ns: Option<(u64, u64)>,
    /// The named cursors.
    pub cursors: Vec<CursorInfo>,
    /// The processes that have the journal open to write.
    pub writers: Vec<u32>,
}

pub(crate) fn info<S: Storage>(core: &Core<S>) -> Result<Info> {
    let from = core.first_segment();
    let to = core.tail_segment();
    let mut bytes = 0;
    let mut disk_bytes = 0;
    for number in from..=to {
        let segment = core.segment(number)?;
        let end = if number < to {
            core.ended(&segment)?.0
        } else {
            core.end(&segment)
        };
        bytes += end.offset.saturating_sub(segment.data_start());
        disk_bytes += segment.bytes();
    }
    let first = core.first()?;
    let next = core.published()?;
    let times_ns = if next > first {
        Some((core.time_of(first)?, core.time_of(next - 1)?))
    } else {
        None
    };
    Ok(Info {
        path: core.path(),
        version: VERSION,
        first,
        next,
        durable: core.durable(),
        segments: to - from + 1,
        segment_bytes: core.segment_bytes,
        disk_bytes,
        bytes,
        times_ns,
        cursors: cursor_file::list(core)?,
        writers: writers(core)?,
    })
}

/// The processes whose slot is locked.
fn writers<S: Storage>(core: &Core<S>) -> Result<Vec<u32>> {
    let Some(control) = core.live_control() else {
        return Ok(Vec::new());
    };
    let mut writers = Vec::new();
    for slot in 0..control::WRITERS_MAX {
        let pid = control.process(slot).pid;
        if pid == 0 {
            continue;
        }
        let name = lock::file(slot);
        match core.storage.is_locked(&name) {
            Ok(true) => writers.push(pid),
            Ok(false) => {}
            // It was tidied away, or is not for this reader.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::PermissionDenied
                ) => {}
            Err(source) => {
                return Err(Error::Io {
                    verb: "lock",
                    path: core.storage.path(&name),
                    source,
                });
            }
        }
    }
    Ok(writers)
}
