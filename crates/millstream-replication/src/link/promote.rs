//! Making copies leaders: all journals of a set begin one new term.

use std::path::{Path, PathBuf};

use millstream_journal::{Error, Journal, Options};

use super::copy::PRUNED;
use super::error::ReplicationError;
use super::followers;
use super::served::with_companions;

/// A journal that was promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promoted {
    /// Its directory.
    pub dir: PathBuf,
    /// The term that it was in.
    pub before: u64,
    /// The term that has begun.
    pub term: u64,
    /// The first sequence number of that term.
    pub start: u64,
    /// Whether it was a copy before.
    pub was_copy: bool,
}

/// Begin a new term in these journals: they may be appended to from now on, and all that they hold is durable. A
/// directory that is no journal stands for the journals in it; the companions of a service's output belong to the
/// output.
///
/// The term is one more than the newest that any of them knows. A process that dies in the middle may have promoted
/// some of them; the same call again promotes all to one term.
///
/// # Errors
/// [`ReplicationError::InUse`] while another process appends to one of them, as a follower does: then nothing is
/// changed. A directory without journals; what the system says.
pub fn promote(dirs: &[PathBuf]) -> Result<Vec<Promoted>, ReplicationError> {
    let mut journals = Vec::new();
    for dir in dirs {
        for dir in journals_of(dir)? {
            if journals.iter().all(|(other, _)| *other != dir) {
                let journal = open_alone(&dir)?;
                journals.push((dir, journal));
            }
        }
    }
    let mut newest = 0;
    for (_, journal) in &journals {
        let leadership = journal.leadership()?;
        newest = newest.max(leadership.superseded_by.unwrap_or(leadership.term));
    }
    let mut promoted = Vec::new();
    for (dir, journal) in journals {
        let before = journal.leadership()?;
        let term = journal.begin_term(newest + 1)?;
        end_following(&journal)?;
        promoted.push(Promoted {
            dir,
            before: before.term,
            term: term.number,
            start: term.start,
            was_copy: before.is_copy,
        });
    }
    Ok(promoted)
}

/// Begin this term, which is newer than all that are known, in one journal: as [`promote`], for a machine that has the
/// term from an arbiter. The followers of a journal that has led before stay: what they have acknowledged, they have.
///
/// # Errors
/// As for [`promote`].
#[doc(hidden)] // For the other crates of Millstream.
pub fn lead(dir: &Path, term: u64) -> Result<(), ReplicationError> {
    let journal = open_alone(dir)?;
    let was_copy = journal.leadership()?.is_copy;
    journal.begin_term(term)?;
    if was_copy {
        end_following(&journal)?;
    }
    Ok(())
}

/// What a journal has as a copy, and must not have as a leader.
fn end_following(journal: &Journal) -> Result<(), ReplicationError> {
    // Followers of the old leader: they have acknowledged nothing of this term.
    followers::forget_all(journal)?;
    // It kept what the old leader had.
    let mut cursors = journal.cursors()?.into_iter();
    if cursors.any(|cursor| cursor.name == PRUNED) {
        journal.remove_cursor(PRUNED)?;
    }
    Ok(())
}

/// The journals that a directory stands for: itself and its companions, or the journals in it.
///
/// # Errors
/// [`millstream_journal::Error::NotFound`] when there are none; a journal that cannot be opened.
#[doc(hidden)] // For the other crates of Millstream.
pub fn journals_of(dir: &Path) -> Result<Vec<PathBuf>, ReplicationError> {
    if is_journal(dir)? {
        let all = with_companions(&[(String::new(), dir.to_owned())]);
        let mut found = Vec::new();
        for (_, dir, is_companion) in all {
            if !is_companion || is_journal(&dir)? {
                found.push(dir);
            }
        }
        return Ok(found);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // The records that a rejoin has set aside are in directories beside the journals, and are not members of the
        // set.
        let is_aside = entry.file_name().to_string_lossy().contains(".dropped-");
        if path.is_dir() && !is_aside && is_journal(&path)? {
            found.push(path);
        }
    }
    if found.is_empty() {
        let path = dir.to_owned();
        return Err(Error::NotFound { path }.into());
    }
    found.sort();
    Ok(found)
}

fn is_journal(dir: &Path) -> Result<bool, ReplicationError> {
    match Journal::open(dir, Options::read_only()) {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. } | Error::NotAJournal { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Open a journal to which no other process appends.
fn open_alone(dir: &Path) -> Result<Journal, ReplicationError> {
    let options = Options {
        create: false,
        sole_writer: true,
        ..Options::default()
    };
    let journal = Journal::open(dir, options)?;
    match journal.writer() {
        Err(Error::Locked { path, .. }) => Err(in_use(path, &journal)?),
        writer => {
            drop(writer?);
            Ok(journal)
        }
    }
}

fn in_use(path: PathBuf, journal: &Journal) -> Result<ReplicationError, ReplicationError> {
    let writers: Vec<_> = journal.info()?.writers.iter().map(u32::to_string).collect();
    let follower = if journal.leadership()?.is_copy {
        ": its follower"
    } else {
        ""
    };
    let who = match writers.as_slice() {
        [] => format!("another process appends{follower}"),
        [one] => format!("process {one} appends{follower}"),
        all => format!("processes {} append", all.join(", ")),
    };
    Ok(ReplicationError::InUse { path, who })
}
