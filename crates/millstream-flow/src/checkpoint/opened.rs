//! A state journal between its opening and the decision on what is prepared in it.
//!
//! The records after the last commit are truncated when a flow starts, with one exception: a run of several processes
//! may have been killed after process 0 had committed an epoch and before this process had appended its commit record.
//! Then the prepared epoch is kept.
//!
//! Invariant: nothing is truncated before it is decided, so that a directory that is refused stays as it is.

use std::path::{Path, PathBuf};

use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Error, Journal, Options};

use super::division::{has_stopped, undelivered};
use super::fits::saved_names;
use super::fragments;
use super::record::Commit;
use super::store::{SEGMENT_BYTES, Scan, Store, failed, path, scan};
use crate::cluster::StateOffer;
use crate::error::{Cause, FlowError, context};

/// A state directory that is open, and of which nothing is truncated yet.
pub(crate) struct Opened {
    dir: PathBuf,
    journal: Journal,
    scan: Scan,
    sync: bool,
}

/// Says what to do about a state that another run has open.
fn in_use(error: Error) -> Cause {
    match error {
        Error::Locked { .. } => context(
            "a run has it open: stop the flow first, by Ctrl-C or SIGTERM",
            error,
        ),
        error => error.into(),
    }
}

impl Opened {
    /// Opens the directory, or creates it.
    pub(crate) fn open(dir: &Path, sync: bool) -> Result<Self, FlowError> {
        let open = || {
            create_dir_durably(dir)?;
            let options = Options {
                exclusive: true,
                record_bytes_max: fragments::STORED_BYTES_MAX,
                ..Options::default().with_segment_bytes(SEGMENT_BYTES)
            };
            let journal = Journal::open(path(dir), options).map_err(in_use)?;
            check_no_copy(dir, &journal)?;
            let scan = scan(&journal)?;
            Ok(Opened {
                dir: dir.to_owned(),
                journal,
                scan,
                sync,
            })
        };
        open().map_err(|cause: Cause| failed(dir, cause))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The last commit.
    pub(crate) fn commit(&self) -> Option<&Commit> {
        self.scan.index.commit.as_ref()
    }

    /// What is prepared after the last commit.
    pub(crate) fn prepared(&self) -> Option<&Commit> {
        self.scan.prepared.as_ref().map(|(commit, _)| commit)
    }

    /// Whether the flow had come to its end, and this process has committed and delivered all that it had.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |commit: &Commit| commit.finished && has_stopped(&self.dir, commit.epoch);
        self.commit().is_some_and(ended)
            && self.prepared().is_none()
            && matches!(undelivered(&self.dir), Ok(None))
    }

    /// What the other processes need to know of the directory.
    pub(crate) fn offer(&self) -> StateOffer {
        let commit = self.commit();
        let division = commit.and_then(|commit| commit.division.as_ref());
        let prepared = self.prepared();
        StateOffer {
            cluster: division.map(|division| division.cluster),
            processes: division.map(|division| division.processes),
            committed: commit.map(Commit::id),
            prepared: prepared.map(Commit::id),
            members: division.map_or_else(Vec::new, |division| division.members.clone()),
            ..StateOffer::default()
        }
    }

    /// The names of all that has saved state, or will have when what is prepared is kept.
    pub(crate) fn saved_names(&self) -> impl Iterator<Item = &str> {
        let steps = || self.scan.index.steps.iter().map(String::as_str);
        let commits = self.commit().into_iter().chain(self.prepared());
        let names = commits.flat_map(move |commit| saved_names(steps(), commit));
        names.map(|(_, name)| name)
    }

    /// Truncates what follows the last commit, durably.
    pub(crate) fn truncate(self) -> Result<Store, FlowError> {
        let cut = || -> Result<Store, Cause> {
            self.journal.cut(self.scan.end)?;
            Store::new(&self.dir, self.journal, self.scan.index, self.sync)
        };
        let dir = self.dir.clone();
        cut().map_err(|cause| failed(&dir, cause))
    }

    /// Commits what is prepared, durably, and truncates what follows it. Without a prepared epoch as
    /// [`truncate`](Self::truncate).
    pub(crate) fn keep(self) -> Result<Store, FlowError> {
        let Some((commit, end)) = self.scan.prepared else {
            return self.truncate();
        };
        let dir = self.dir.clone();
        let keep = || -> Result<Store, Cause> {
            self.journal.cut(end)?;
            let mut index = self.scan.index;
            let mut reader = self.journal.reader()?;
            reader.seek(self.scan.end)?;
            fragments::read_each(&mut reader, end, |numbers, body| index.add(numbers, body))?;
            drop(reader);
            let mut store = Store::new(&self.dir, self.journal, index, self.sync)?;
            store.commit_prepared(&commit, true)?;
            Ok(store)
        };
        keep().map_err(|cause| failed(&dir, cause))
    }
}

/// Refuses the copy of a state that is followed, until it is promoted.
fn check_no_copy(dir: &Path, journal: &Journal) -> Result<(), Cause> {
    let leadership = journal.leadership()?;
    let dir = dir.display();
    match leadership.superseded_by {
        Some(_) => Err("a copy of it was promoted on another machine, and the flow continues there; this is an older state".into()),
        None if leadership.is_copy => Err(format!(
            "it is a copy of the state of a flow on another machine; once that one is lost: millstream state promote {dir}"
        )
        .into()),
        None => Ok(()),
    }
}
