//! Comparing a stored position with what the journal holds now.

use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::read::bookmark::Bookmark;
use crate::storage::Storage;

impl<S: Storage> Journal<S> {
    /// The position `next` with the checksum of the record before it.
    ///
    /// # Errors
    /// [`Error::NotYet`] after the end; [`Error::Pruned`] before the oldest record; [`Error::Damage`] of the record.
    pub fn bookmark(&self, next: u64) -> Result<Bookmark> {
        let mut reader = self.reader()?;
        reader.seek(next)?;
        reader.bookmark()
    }

    /// Checks that the record before a position is the one that was read: that the journal has not lost its end since, which would let
    /// other records have the numbers of those that were read. A position at or before the oldest record is accepted: nothing is left to
    /// compare.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Damage`] of the record.
    pub fn confirm(&self, bookmark: Bookmark) -> Result<()> {
        let Bookmark { next, checksum } = bookmark;
        let (first, end) = (self.first()?, self.next()?);
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
        match self.bookmark(next) {
            Ok(found) if checksum.is_none() || found.checksum == checksum => Ok(()),
            Ok(_) => Err(lost()),
            // Retention has removed the record meanwhile.
            Err(Error::Pruned { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
