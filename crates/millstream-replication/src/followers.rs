//! The followers of a journal: which count, and waiting until they have a record, in any process of the leader's
//! machine.
//!
//! The serving process keeps the position of each follower in a cursor of the journal, `follower.NAME`. So a writer
//! needs no connection to it, a follower's position survives restarts, and retention by cursors keeps what a follower
//! has not got.
//!
//! A follower counts when its copy was *admitted*: by the serving process, while all that counted before were
//! connected, or by an operator. Otherwise a follower that is started beside a leader that cannot reach the others
//! would let it acknowledge records, while one of the others is promoted.
//!
//! ```
//! use std::time::Duration;
//! use millstream_journal::{Journal, Options, CursorMode};
//! use millstream_replication::{Followers, Standing};
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! let sequence = journal.writer()?.append(b"buy 100")?;
//! // What `millstream journal serve` does when copy 7 of the follower "backup" has acknowledged:
//! journal.cursor("follower.backup", CursorMode::Shared)?.set_for(7, sequence + 1)?;
//!
//! let mut followers = Followers::of(&journal);
//! assert_eq!(followers.list()?[0].standing, Standing::New);
//! followers.admit("backup")?;
//! followers.wait(sequence, 1, Some(Duration::from_secs(5)))?;
//! assert_eq!(followers.positions()?, [("backup".to_owned(), 1)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Admission, CursorInfo, CursorView, Error, Journal};

use super::error::{ReplicationError, Uncounted};

/// The first and the longest pause between two polls.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// The interval between two checks for new followers.
const LIST_EVERY_NS: u64 = 20_000_000;

/// A follower of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Follower {
    /// Its name.
    pub name: String,
    /// The sequence number of the record that it needs next.
    pub position: u64,
    /// The [own number](millstream_journal::Identity::own) of its copy.
    pub copy: u64,
    /// Whether it counts, and why not.
    pub standing: Standing,
    /// Whether it is connected to a serving process of this machine; `None` when this process may not know.
    pub is_connected: Option<bool>,
}

/// Whether a follower counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It counts.
    Counted,
    /// It does not: it was never admitted.
    New,
    /// It does not: its copy is another one than the copy that was admitted under its name.
    OtherCopy,
}

/// The followers of a journal.
pub struct Followers {
    journal: Journal,
    cursors: Vec<CursorView>,
    /// When they were looked for.
    viewed_ns: Option<u64>,
}

impl Followers {
    /// Those of this journal.
    #[must_use]
    pub fn of(journal: &Journal) -> Self {
        Followers {
            journal: journal.clone(),
            cursors: Vec::new(),
            viewed_ns: None,
        }
    }

    /// The names of the followers that count, with the sequence number of the record that each needs next.
    ///
    /// # Errors
    /// A cursor that cannot be read.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn positions(&self) -> Result<Vec<(String, u64)>, ReplicationError> {
        let mut cursors = self.journal.cursors()?;
        cursors.retain(CursorInfo::counts);
        let ours = cursors.iter().filter_map(|cursor| {
            let name = cursor.follower()?;
            Some((name.to_owned(), cursor.position))
        });
        Ok(ours.collect())
    }

    /// All followers, also those that do not count.
    ///
    /// # Errors
    /// A cursor that cannot be read.
    pub fn list(&self) -> Result<Vec<Follower>, ReplicationError> {
        let mut followers = Vec::new();
        for cursor in self.journal.cursors()? {
            if let Some(name) = cursor.follower() {
                followers.push(Follower {
                    name: name.to_owned(),
                    position: cursor.position,
                    copy: cursor.copy,
                    standing: Standing::of(&cursor),
                    is_connected: self.journal.is_cursor_open(&cursor.name)?,
                });
            }
        }
        Ok(followers)
    }

    /// Let a follower count: its present copy. The copy that was admitted under the name before does not count any
    /// more. A read-only opening does.
    ///
    /// # Errors
    /// [`ReplicationError::NoFollower`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn admit(&self, name: &str) -> Result<(), ReplicationError> {
        self.find(name)?;
        self.journal.admit_follower(name)?;
        Ok(())
    }

    /// Let a follower not count any more. What it has not got is still kept for it.
    ///
    /// # Errors
    /// [`ReplicationError::NoFollower`]; an error of the system.
    pub fn dismiss(&self, name: &str) -> Result<(), ReplicationError> {
        self.find(name)?;
        self.journal.dismiss_follower(name)?;
        Ok(())
    }

    /// Forget a follower that will not return: it neither counts nor retains records, and the admission of others does
    /// not wait for it. A read-only opening does.
    ///
    /// # Errors
    /// [`ReplicationError::NoFollower`]; [`ReplicationError::Connected`]; an error of the system.
    pub fn forget(&self, name: &str) -> Result<(), ReplicationError> {
        self.find(name)?;
        match self.journal.remove_follower(name) {
            Err(Error::CursorInUse { path, .. }) => Err(ReplicationError::Connected {
                path,
                name: name.to_owned(),
            }),
            removed => Ok(removed?),
        }
    }

    fn find(&self, name: &str) -> Result<(), ReplicationError> {
        let cursors = self.journal.cursors()?;
        let names = cursors.iter().filter_map(CursorInfo::follower);
        let names: Vec<_> = names.map(str::to_owned).collect();
        if names.iter().any(|follower| follower == name) {
            return Ok(());
        }
        Err(ReplicationError::NoFollower {
            path: self.journal.path(),
            name: name.to_owned(),
            names,
        })
    }

    /// Wait until so many followers that count have acknowledged the record `sequence`, and all before; without a
    /// `limit` forever.
    ///
    /// # Errors
    /// [`millstream_journal::Error::Superseded`] when another copy was promoted. [`ReplicationError::NotFollowed`] when
    /// the time is over. The record is in the journal all the same, and may still be followed.
    pub fn wait(
        &mut self,
        sequence: u64,
        followers: usize,
        limit: Option<Duration>,
    ) -> Result<(), ReplicationError> {
        self.wait_until(sequence, followers, |have, _| have >= followers, limit)
    }

    /// Wait until all followers that count have acknowledged the record `sequence`, and all before, and one at least:
    /// any of them may be promoted then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub fn wait_for_all(
        &mut self,
        sequence: u64,
        limit: Option<Duration>,
    ) -> Result<(), ReplicationError> {
        let is_enough = |have, counted| have > 0 && have == counted;
        self.wait_until(sequence, 1, is_enough, limit)
    }

    fn wait_until(
        &mut self,
        sequence: u64,
        wanted: usize,
        is_enough: impl Fn(usize, usize) -> bool,
        limit: Option<Duration>,
    ) -> Result<(), ReplicationError> {
        let start = monotonic_ns();
        let mut pause = PAUSE_MIN;
        let mut is_viewed = false;
        loop {
            let now = monotonic_ns();
            let waited = Duration::from_nanos(now - start);
            let is_over = limit.is_some_and(|limit| waited >= limit);
            // Also before a wait that is over at once: a follower that counts now is waited for.
            let is_due = self.viewed_ns.is_none_or(|at| now - at > LIST_EVERY_NS);
            if is_due || (is_over && !is_viewed) {
                self.view_all()?;
                (self.viewed_ns, is_viewed) = (Some(now), true);
            }
            let (have, counted) = self.count(sequence)?;
            if is_enough(have, counted) {
                return Ok(());
            }
            if self.journal.is_superseded()
                && let Some(by) = self.journal.leadership()?.superseded_by
            {
                let path = self.journal.path();
                let term = self.journal.leadership()?.term;
                return Err(Error::Superseded { path, term, by }.into());
            }
            if let Some(limit) = limit.filter(|_| is_over) {
                return Err(ReplicationError::NotFollowed {
                    sequence,
                    followers: have,
                    wanted,
                    waited: limit,
                    uncounted: self.uncounted()?,
                });
            }
            let left = limit.map_or(pause, |limit| limit.saturating_sub(waited));
            rest(pause.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// How many followers that count have a record, and how many there are.
    fn count(&self, sequence: u64) -> Result<(usize, usize), ReplicationError> {
        let mut have = 0;
        let mut counted = 0;
        for cursor in &self.cursors {
            if let Some(position) = cursor.counted()? {
                counted += 1;
                have += usize::from(position > sequence);
            }
        }
        Ok((have, counted))
    }

    fn view_all(&mut self) -> Result<(), ReplicationError> {
        let mut cursors = Vec::new();
        for info in self.journal.cursors()? {
            if info.follower().is_some() {
                cursors.extend(self.journal.cursor_view(&info.name)?);
            }
        }
        self.cursors = cursors;
        Ok(())
    }

    fn uncounted(&self) -> Result<Option<Uncounted>, ReplicationError> {
        let mut cursors = self.journal.cursors()?;
        cursors.retain(|cursor| !cursor.counts());
        let names = cursors.iter().filter_map(CursorInfo::follower);
        let names: Vec<_> = names.map(str::to_owned).collect();
        let path = self.journal.path();
        Ok((!names.is_empty()).then_some(Uncounted { path, names }))
    }
}

impl Standing {
    fn of(cursor: &CursorInfo) -> Self {
        match cursor.admission {
            _ if cursor.counts() => Standing::Counted,
            Admission::Done(_) => Standing::OtherCopy,
            Admission::Begun(copy) if copy != cursor.copy => Standing::OtherCopy,
            Admission::Begun(_) | Admission::None => Standing::New,
        }
    }
}

#[cfg(feature = "link")]
/// Removes all followers of a journal: their acknowledgements to another leader are not valid here, and must not delay
/// retention.
pub(super) fn forget_all(journal: &Journal) -> Result<(), ReplicationError> {
    for info in journal.cursors()? {
        let Some(name) = info.follower() else {
            continue;
        };
        match journal.remove_follower(name) {
            // A process serves it: it stays, and does not count.
            Err(Error::CursorInUse { .. }) => drop(journal.dismiss_follower(name)?),
            removed => removed?,
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

#[cfg(test)]
mod tests {
    use millstream_journal::{Cursor, CursorMode, Options};

    use super::*;

    /// A journal with one record, and the follower `backup`, whose copy 7 has it.
    fn followed(folder: &tempfile::TempDir) -> (Journal, Cursor) {
        let journal = Journal::open(folder.path().join("orders"), Options::default()).unwrap();
        journal.writer().unwrap().append(b"buy 100").unwrap();
        let cursor = journal
            .cursor("follower.backup", CursorMode::Shared)
            .unwrap();
        cursor.set_for(7, 1).unwrap();
        (journal, cursor)
    }

    fn has(followers: &mut Followers, sequence: u64) -> bool {
        match followers.wait(sequence, 1, Some(Duration::ZERO)) {
            Ok(()) => true,
            Err(ReplicationError::NotFollowed { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn standing(followers: &Followers) -> Standing {
        followers.list().unwrap()[0].standing
    }

    #[test]
    fn a_follower_counts_once_it_is_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _cursor) = followed(&folder);
        let mut followers = Followers::of(&journal);
        assert!(followers.positions().unwrap().is_empty());
        assert_eq!(standing(&followers), Standing::New);
        let error = followers.wait(0, 1, Some(Duration::ZERO)).unwrap_err();
        let path = journal.path();
        let remedy = format!(
            "0 of 1 follower(s) had acknowledged it after 0ns; 'backup' does not count: `millstream journal followers {}` says why, \
             `--admit NAME` lets it count",
            path.display()
        );
        assert!(error.to_string().ends_with(&remedy), "{error}");
        // An opening that only reads is enough.
        let reading = Journal::open(path, Options::read_only()).unwrap();
        Followers::of(&reading).admit("backup").unwrap();
        assert!(has(&mut followers, 0));
        assert_eq!(standing(&followers), Standing::Counted);
        assert_eq!(followers.positions().unwrap(), [("backup".to_owned(), 1)]);
        let other = followers.admit("other").unwrap_err().to_string();
        let says = "there is no follower 'other'; there are: backup";
        assert!(other.ends_with(says), "{other}");
    }

    #[test]
    fn a_copy_that_was_begun_anew_does_not_count_for_the_one_that_was_admitted() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, cursor) = followed(&folder);
        let mut followers = Followers::of(&journal);
        followers.admit("backup").unwrap();
        assert!(has(&mut followers, 0));
        // A waiter that knows the cursor already notices.
        cursor.set_for(8, 1).unwrap();
        assert!(!has(&mut followers, 0));
        assert_eq!(standing(&followers), Standing::OtherCopy);
        // The old copy comes back.
        cursor.set_for(7, 1).unwrap();
        assert!(has(&mut followers, 0));
        cursor.set_for(8, 1).unwrap();
        followers.admit("backup").unwrap();
        assert!(has(&mut followers, 0));
        cursor.set_for(7, 1).unwrap();
        assert!(!has(&mut followers, 0));
    }

    #[test]
    fn a_follower_that_is_forgotten_neither_counts_nor_retains_records() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, cursor) = followed(&folder);
        let mut followers = Followers::of(&journal);
        followers.admit("backup").unwrap();
        assert!(has(&mut followers, 0));
        assert_eq!(followers.list().unwrap()[0].is_connected, Some(true));
        let error = followers.forget("backup").unwrap_err().to_string();
        let says =
            "the follower 'backup' is connected, or was a moment ago; stop it, and repeat this";
        assert!(error.ends_with(says), "{error}");
        assert!(has(&mut followers, 0), "nothing was changed");
        drop(cursor);
        assert_eq!(followers.list().unwrap()[0].is_connected, Some(false));
        followers.forget("backup").unwrap();
        assert!(!has(&mut followers, 0));
        assert!(journal.cursors().unwrap().is_empty());
        let error = followers.forget("backup").unwrap_err().to_string();
        assert!(
            error.ends_with("no follower 'backup'; it has none"),
            "{error}"
        );
    }

    #[cfg(feature = "link")]
    #[test]
    fn all_followers_are_forgotten_also_one_that_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _cursor) = followed(&folder);
        let other = journal.cursor("follower.other", CursorMode::Shared);
        other.unwrap().set_for(9, 1).unwrap();
        let mut followers = Followers::of(&journal);
        followers.admit("backup").unwrap();
        followers.admit("other").unwrap();
        followers.wait(0, 2, Some(Duration::ZERO)).unwrap();
        forget_all(&journal).unwrap();
        assert!(!has(&mut followers, 0));
        let left = followers.list().unwrap();
        let left: Vec<_> = left.iter().map(|one| (&*one.name, one.standing)).collect();
        assert_eq!(left, [("backup", Standing::New)]);
    }
}
