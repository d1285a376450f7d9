//! Waiting until followers have a record, in any process of the leader's machine.
//!
//! The serving process keeps the position of each follower in a cursor of the journal, `follower.NAME`. So a writer needs no connection
//! to it, a follower's position survives restarts, and retention by cursors keeps what a follower has not got.
//!
//! ```
//! use std::time::Duration;
//! use millstream_journal::{Journal, Options, CursorMode};
//! use millstream_replication::Followers;
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! let sequence = journal.writer()?.append(b"buy 100")?;
//! // What `millstream journal serve` does when the follower "backup" has acknowledged:
//! journal.cursor("follower.backup", CursorMode::Shared)?.set(sequence + 1)?;
//!
//! let mut followers = Followers::of(&journal);
//! followers.wait(sequence, 1, Some(Duration::from_secs(5)))?;
//! assert_eq!(followers.positions()?, [("backup".to_owned(), 1)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Cursor, CursorMode, Error, Journal};

use super::error::ReplicationError;

/// The prefix of the cursors' names.
pub(super) const PREFIX: &str = "follower.";
/// The first and the longest pause between two polls.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The interval between two checks for new followers.
const LIST_EVERY_NS: u64 = 20_000_000;

/// The followers of a journal that have acknowledged any record.
pub struct Followers {
    journal: Journal,
    cursors: Vec<Cursor>,
}

impl Followers {
    /// Those of this journal, which must be open to write.
    #[must_use]
    pub fn of(journal: &Journal) -> Self {
        Followers {
            journal: journal.clone(),
            cursors: Vec::new(),
        }
    }

    /// The names of all followers, with the sequence number of the record that each needs next.
    ///
    /// # Errors
    /// A cursor that cannot be read.
    pub fn positions(&self) -> Result<Vec<(String, u64)>, ReplicationError> {
        let cursors = self.journal.cursors()?.into_iter();
        let ours = cursors.filter_map(|cursor| {
            let name = cursor.name.strip_prefix(PREFIX)?;
            Some((name.to_owned(), cursor.position))
        });
        Ok(ours.collect())
    }

    /// Wait until so many followers have acknowledged the record `sequence`, and all before; without a `limit` forever.
    ///
    /// # Errors
    /// [`millstream_journal::Error::Superseded`] when another copy was promoted.
    /// [`ReplicationError::NotFollowed`] when the time is over. The record is in the journal all the same, and may still be followed.
    pub fn wait(
        &mut self,
        sequence: u64,
        followers: usize,
        limit: Option<Duration>,
    ) -> Result<(), ReplicationError> {
        let start = monotonic_ns();
        let mut listed = None;
        let mut pause = PAUSE_MIN;
        loop {
            let have = self.count(sequence)?;
            if have >= followers {
                return Ok(());
            }
            if self.journal.is_superseded()
                && let Some(by) = self.journal.leadership()?.superseded_by
            {
                let (path, term) = (self.journal.path(), self.journal.leadership()?.term);
                return Err(Error::Superseded { path, term, by }.into());
            }
            let now = monotonic_ns();
            if listed.is_none_or(|at| now - at > LIST_EVERY_NS) {
                self.list()?;
                listed = Some(now);
                continue;
            }
            let waited = Duration::from_nanos(now - start);
            if let Some(limit) = limit.filter(|limit| waited >= *limit) {
                return Err(ReplicationError::NotFollowed {
                    sequence,
                    followers: have,
                    wanted: followers,
                    waited: limit,
                });
            }
            let left = limit.map_or(pause, |limit| limit - waited);
            rest(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn count(&self, sequence: u64) -> Result<usize, ReplicationError> {
        let mut have = 0;
        for cursor in &self.cursors {
            have += usize::from(cursor.position()? > sequence);
        }
        Ok(have)
    }

    fn list(&mut self) -> Result<(), ReplicationError> {
        let mut cursors = Vec::new();
        for info in self.journal.cursors()? {
            if !info.name.starts_with(PREFIX) {
                continue;
            }
            match self.journal.cursor(&info.name, CursorMode::Shared) {
                // It is being removed this moment.
                Err(Error::CursorInUse { .. }) => {}
                cursor => cursors.push(cursor?),
            }
        }
        self.cursors = cursors;
        Ok(())
    }
}

#[cfg(feature = "link")]
/// Removes all followers of a journal: their acknowledgements to another leader are not valid here, and must not delay retention.
pub(super) fn forget(journal: &Journal) -> Result<(), ReplicationError> {
    for info in journal.cursors()? {
        if info.name.starts_with(PREFIX) {
            match journal.remove_cursor(&info.name) {
                // The process that holds the cursor finds out by itself.
                Err(Error::CursorInUse { .. }) => {}
                removed => removed?,
            }
        }
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a cursor is moved by another process, which cannot wake this one"
)]
fn rest(pause: Duration) {
    std::thread::sleep(pause);
}
