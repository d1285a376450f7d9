//! Copies the state of a flow, while it runs or not: for a backup, or for a second flow that goes on by itself.
//!
//! Journals are copied record by record, the journals of epochs up to one commit. In a run of several processes that is
//! a commit of process 0, and of each other process the one that it names. Everything else is copied after that commit
//! was chosen, so that it has what the commit refers to; what a running flow has removed meanwhile begins the copy
//! anew.
//!
//! Invariant: the directory of the copy appears when it is complete and durable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Error, Host, Identity, Journal, Options};

use super::directories::{names, process_dir, processes_in};
use super::division::{STOPPED, has_stopped, write_stopped};
use super::fragments;
use super::record::{self, Commit, Record};
use super::store::{failed, path, scan};
use crate::cluster::CommitId;
use crate::error::{Cause, FlowError};

/// How often a copy begins anew, because the flow has removed what was needed.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// The file that each journal has.
const OF_JOURNAL: &str = "identity";

/// What was copied by [`copy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Copied {
    /// The number of processes among which the state is divided.
    pub processes: usize,
    /// The commit of the copy.
    pub epoch: u64,
    /// The records of all journals.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Copies the state in `dir`, the directory that runs were given, to the new directory `to`. A flow may run on `dir`
/// meanwhile, on one process or on several; of several all directories must be in `dir`.
///
/// Not copied are files that sinks write, files that sources read, and named cursors in journals.
///
/// ```no_run
/// let copied = millstream_flow::checkpoint::copy("state", "backup")?;
/// println!("epoch {}: {} records", copied.epoch, copied.records);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
///
/// # Errors
/// There is no state, or the directory of a process is missing; `to` exists; the flow removes its old records faster
/// than they are copied.
#[doc(hidden)] // For the other crates of Millstream.
pub fn copy(dir: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Copied, FlowError> {
    let dir = dir.as_ref();
    let to = to.as_ref();
    if to.exists() {
        return Err(failed(to, "it exists; a copy is made in a new directory"));
    }
    let next = beside(to);
    for _ in 0..ATTEMPTS {
        match copy_once(dir, &next) {
            Ok(copied) => {
                let renamed = fs::rename(&next, to).and_then(|()| sync_dir(to.parent()));
                return renamed.map(|()| copied).map_err(|error| failed(to, error));
            }
            Err(Fault::Moved) => pause(),
            Err(Fault::Failed(cause)) => {
                let _incomplete = fs::remove_dir_all(&next);
                return Err(failed(dir, cause));
            }
        }
    }
    let _incomplete = fs::remove_dir_all(&next);
    Err(failed(
        dir,
        "the flow removes its old records faster than they are copied; stop it, or copy when it has less to do",
    ))
}

/// Why a copy could not be made.
enum Fault {
    /// The flow has changed what was being copied.
    Moved,
    Failed(Cause),
}

impl<E: Into<Cause>> From<E> for Fault {
    fn from(error: E) -> Self {
        let cause = error.into();
        match cause.downcast_ref() {
            Some(Error::Pruned { .. }) => Fault::Moved,
            _ => Fault::Failed(cause),
        }
    }
}

/// The state directory of a process, with the end of the records of its journal of epochs that are copied.
struct Part {
    from: PathBuf,
    to: PathBuf,
    end: u64,
    /// The commit with which the copy ends, if the process has one.
    commit: Option<u64>,
    /// The first records of all journals, before a commit was chosen: what the commit refers to is not before these.
    firsts: Vec<(PathBuf, u64)>,
}

fn copy_once(dir: &Path, next: &Path) -> Result<Copied, Fault> {
    if next.exists() {
        fs::remove_dir_all(next)?;
    }
    create_dir_durably(next)?;
    let found = processes_in(dir)?;
    let dirs: Vec<(PathBuf, PathBuf)> = match (dir.join("epochs").is_dir(), &found[..]) {
        (false, []) => {
            return Err(Fault::Failed(
                "it is not the state directory of a flow".into(),
            ));
        }
        (true, _) => vec![(dir.to_owned(), next.to_owned())],
        (false, found) => {
            let of = |process: &usize| (process_dir(dir, *process), process_dir(next, *process));
            found.iter().map(of).collect()
        }
    };
    let mut firsts = Vec::new();
    for (from, _) in &dirs {
        firsts.push(first_records(from)?);
    }
    let (first, end) = last_commit(&dirs[0].0)?;
    let division = first.division.as_ref();
    let processes = division.map_or(1, |division| division.processes);
    if division.is_some() && found != (0..processes).collect::<Vec<_>>() {
        return Err(Fault::Failed(format!(
            "the state is divided among {processes} processes, and it has the directories {found:?}; copy it where all of them are"
        ).into()));
    }
    let mut copied = Copied {
        processes,
        epoch: first.epoch,
        records: 0,
        bytes: 0,
    };
    let mut parts = Vec::new();
    for (process, ((from, to), firsts)) in dirs.into_iter().zip(firsts).enumerate() {
        let (end, commit) = match (process, division) {
            (0, _) | (_, None) => (end, Some(first.epoch)),
            (process, Some(division)) => {
                let known = division.members.get(process).copied().unwrap_or_default();
                (end_of(&from, known)?, Some(known.epoch))
            }
        };
        parts.push(Part {
            from,
            to,
            end,
            commit,
            firsts,
        });
    }
    for part in &parts {
        part.copy(&mut copied)?;
    }
    Ok(copied)
}

/// The last commit of a state directory, and the number of the record after it.
fn last_commit(dir: &Path) -> Result<(Commit, u64), Fault> {
    let journal = Journal::open(path(dir), Options::read_only())?;
    let scan = scan(&journal)?;
    let commit = scan.index.commit;
    let commit =
        commit.ok_or_else(|| Fault::Failed("the flow has committed nothing yet".into()))?;
    Ok((commit, scan.end))
}

/// The number of the record after a commit in the journal of epochs of a process, or after what it has prepared of that
/// commit.
fn end_of(dir: &Path, id: CommitId) -> Result<u64, Fault> {
    let journal = Journal::open(path(dir), Options::read_only())?;
    let mut reader = journal.reader()?;
    if id == CommitId::default() {
        return Ok(reader.position());
    }
    let mut end = None;
    fragments::read_each(&mut reader, u64::MAX, |numbers, body| {
        let is_end = record::is_commit(body) || record::is_prepared(body);
        if is_end
            && let Ok(Record::Commit(commit) | Record::Prepared(commit)) = Record::read(body)
            && commit.id() == id
        {
            end = Some(numbers.end);
        }
        Ok(())
    })?;
    // A later commit has made this one superfluous.
    end.ok_or(Fault::Moved)
}

impl Part {
    fn copy(&self, copied: &mut Copied) -> Result<(), Fault> {
        create_dir_durably(&self.to)?;
        self.copy_journal(&path(&self.from), &path(&self.to), Some(self.end), copied)?;
        self.copy_within(Path::new(""), copied)?;
        if let Some(epoch) = self.commit.filter(|epoch| has_stopped(&self.from, *epoch)) {
            write_stopped(&self.to, epoch).map_err(|error| Fault::Failed(error.into()))?;
        }
        sync_dir(Some(&self.to))?;
        Ok(())
    }

    /// Copies what is in a directory of this one, besides the journal of epochs and the directories of other processes.
    fn copy_within(&self, within: &Path, copied: &mut Copied) -> Result<(), Fault> {
        for name in names(&self.from.join(within))? {
            let place = within.join(&name);
            let from = self.from.join(&place);
            let to = self.to.join(&place);
            let is_top = within.as_os_str().is_empty();
            if is_top && (name == "epochs" || name == STOPPED) {
                continue;
            }
            if from.join(OF_JOURNAL).is_file() {
                self.copy_journal(&from, &to, None, copied)?;
            } else if from.is_dir() {
                create_dir_durably(&to)?;
                self.copy_within(&place, copied)?;
                sync_dir(Some(&to))?;
            } else {
                copy_growing(&from, &to)?;
            }
        }
        Ok(())
    }

    /// Copies the records of a journal up to `end`, or all that it has now.
    fn copy_journal(
        &self,
        from: &Path,
        to: &Path,
        end: Option<u64>,
        copied: &mut Copied,
    ) -> Result<(), Fault> {
        let journal = Journal::open(from, Options::read_only())?;
        let end = match end {
            Some(end) => end,
            None => journal.next()?,
        };
        let mut firsts = self.firsts.iter();
        let first = match firsts.find(|(known, _)| known == from) {
            Some((_, first)) => *first,
            None => journal.first()?,
        };
        let segment_bytes = journal.info()?.segment_bytes;
        let options = Options {
            create_new: true,
            first_sequence: first,
            identity: Some(Identity::new(Some(journal.lineage()?), &Host::real())),
            segment_bytes,
            // Whatever the journal has, the copy takes.
            record_bytes_max: u32::try_from(segment_bytes)?,
            sole_writer: true,
            ..Options::default()
        };
        create_dir_durably(to.parent().unwrap_or(to))?;
        let copy = Journal::open(to, options)?;
        let writer = copy.writer()?;
        let mut reader = journal.reader()?;
        reader.seek(first)?;
        while reader.position() < end
            && let Some(record) = reader.next()?
        {
            writer.append_at(record.time_ns, record.body)?;
            copied.records += 1;
            copied.bytes += record.body.len() as u64;
        }
        writer.sync()?;
        copy.adopt_terms(&journal.terms()?)?;
        Ok(())
    }
}

/// The first records of all journals in a directory.
fn first_records(dir: &Path) -> Result<Vec<(PathBuf, u64)>, Fault> {
    let mut found = Vec::new();
    if dir.join(OF_JOURNAL).is_file() {
        let journal = Journal::open(dir, Options::read_only())?;
        found.push((dir.to_owned(), journal.first()?));
    } else if dir.is_dir() {
        for name in names(dir)? {
            found.extend(first_records(&dir.join(name))?);
        }
    }
    Ok(found)
}

/// Copies a file to which a run appends and which the start of a run replaces.
fn copy_growing(from: &Path, to: &Path) -> Result<(), Fault> {
    let bytes = fs::read(from)?;
    fs::write(to, &bytes)?;
    File::open(to)?.sync_all()?;
    if fs::read(from)?.starts_with(&bytes) {
        Ok(())
    } else {
        Err(Fault::Moved)
    }
}

/// The directory in which a copy is made, beside that of the copy.
fn beside(to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.with_file_name(format!(".{name}.copying"))
}

fn sync_dir(dir: Option<&Path>) -> std::io::Result<()> {
    let here = Path::new(".");
    let dir = dir.filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(here))?.sync_all()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a copy has no poller, and waits for the flow's next commit"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}
