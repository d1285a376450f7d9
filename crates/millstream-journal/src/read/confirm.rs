//! Comparing a stored position with what the journal holds now.

use std::sync::Arc;

use crate::core::{Core, SegmentOf};
use crate::error::{Error, Result};
use crate::format::published::Published;
use crate::journal::Journal;
use crate::read::bookmark::{self, Bookmark};
use crate::storage::Storage;

impl<S: Storage> Core<S> {
    /// The position `next`, which is there, with the checksum of the record before it. Looks at the segment `near`
    /// first: the others may have to be mapped.
    pub fn bookmark(&self, near: &SegmentOf<S>, next: u64) -> Result<Bookmark> {
        let without = Bookmark {
            next,
            checksum: None,
        };
        let Some(before) = next.checked_sub(1) else {
            return Ok(without);
        };
        let segment = if self.base(near)? <= before {
            Arc::clone(near)
        } else if self.first()? > before {
            return Ok(without);
        } else {
            self.locate(before)?
        };
        let mark = self.find(&segment, before)?;
        let frame = Published::at(&segment, mark.offset).ok().flatten();
        let found = frame.and_then(|frame| {
            let body_crc = frame.sound_body_crc(before)?;
            let checksum = bookmark::checksum_from(body_crc, before, frame.time_ns());
            Some(Bookmark::after(before, checksum))
        });
        found.ok_or_else(|| {
            self.damage(&segment, mark.offset, "a frame does not match its checksum")
        })
    }
}

impl<S: Storage> Journal<S> {
    /// The position `next` with the checksum of the record before it.
    ///
    /// # Errors
    /// [`Error::NotYet`] after the end; [`Error::Pruned`] before the oldest record; [`Error::Damage`] of the record.
    pub fn bookmark(&self, next: u64) -> Result<Bookmark> {
        let core = self.core();
        let find = || {
            let tail = core.tail_open()?;
            let base = core.base(&tail)?;
            // Most positions are in the segment that is appended to, and need no other.
            if next <= base || next > base + core.end(&tail).records {
                core.check_sequence(next)?;
            }
            core.bookmark(&tail, next)
        };
        core.checked(find())
    }

    /// Checks that the record before a position is the one that was read: that the journal has not lost its end since,
    /// which would let other records have the numbers of those that were read. A position at or before the oldest
    /// record is accepted: nothing is left to compare.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Damage`] of the record.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn confirm(&self, bookmark: Bookmark) -> Result<()> {
        let Bookmark { next, checksum } = bookmark;
        let first = self.first()?;
        let end = self.next()?;
        let lost = || Error::Lost {
            path: self.path(),
            sequence: next.saturating_sub(1),
            next: end,
        };
        if next > end {
            return Err(lost());
        }
        if next <= first {
            return Ok(());
        }
        let found = match self.bookmark(next) {
            // Retention has removed the record meanwhile, or the position itself: nothing is left to compare.
            Ok(Bookmark { checksum: None, .. }) | Err(Error::Pruned { .. }) => return Ok(()),
            found => found?,
        };
        if checksum.is_none() || found.checksum == checksum {
            Ok(())
        } else {
            Err(lost())
        }
    }
}
