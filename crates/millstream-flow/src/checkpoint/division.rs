//! The division of a flow's state among the processes of a cluster.
//!
//! Each process has a state directory of its own, `DIR/p0`, `DIR/p1`, ... It has the shards of its workers, the
//! positions of the partitions that these read, and the tokens of their sinks. Every commit says which part of which
//! division it is, so that a directory never serves in another one.
//!
//! Invariant: the commit records of process 0 have the last epoch in which each process had changes. A directory whose
//! last epoch is another one is an older copy, or not of this state.

use std::path::{Path, PathBuf};

use millstream_journal::storage::sync_entry;
use serde::{Deserialize, Serialize};

use super::record::{Commit, SinkMark};
use super::rescale::interrupted;
use super::store;
use crate::cluster::Membership;
use crate::error::FlowError;
use crate::sink::Scope;

/// The part of a state directory in the state of several processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Division {
    /// The id of the divided state, which all its directories have.
    pub cluster: u64,
    /// The run that appended the commit; each start of all processes has another one.
    pub run: u64,
    /// The number of the process.
    pub process: usize,
    /// The number of processes.
    pub processes: usize,
    /// The workers of each process.
    pub workers: usize,
    /// Process 0 only: the last epoch in which each process had changes.
    #[serde(default)]
    pub members: Vec<u64>,
    /// The sources with the names of their partitions in this run, in the order in which workers read them; empty until
    /// the first run on a divided state, in which each directory has the positions of all partitions.
    #[serde(default)]
    pub partitions: Vec<(String, Vec<String>)>,
}

impl Division {
    /// The process that reads the partition with this number.
    #[must_use]
    pub fn reader_of(&self, partition: usize) -> usize {
        partition % (self.processes * self.workers).max(1) / self.workers.max(1)
    }

    /// The partitions of a source in this run.
    pub(crate) fn partitions_of(&self, source: &str) -> &[String] {
        let found = self.partitions.iter().find(|(of, _)| of == source);
        found.map_or(&[], |(_, names)| names)
    }

    /// The process that read a partition; `None` if the run did not begin with it.
    #[must_use]
    pub fn reader(&self, source: &str, partition: &str) -> Option<usize> {
        let mut names = self.partitions_of(source).iter();
        let number = names.position(|name| name == partition)?;
        Some(self.reader_of(number))
    }
}

/// The tokens that the sinks of a process had when a state was divided anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputMarks {
    /// The number of the process; `None` for a run of one process, without a cluster.
    pub process: Option<usize>,
    /// Whether its state directory is one of this division, until the first run on it.
    pub kept: bool,
    /// The tokens.
    pub sinks: Vec<SinkMark>,
}

impl OutputMarks {
    /// Whether a process has the state directory of this one.
    fn is_at(&self, process: Option<usize>) -> bool {
        self.kept && self.process.unwrap_or(0) == process.unwrap_or(0)
    }
}

impl Commit {
    /// Process 0: records that the processes with changes have them in this epoch.
    pub(crate) fn note_changes(&mut self, changed: &[bool]) {
        let epoch = self.epoch;
        if let Some(division) = &mut self.division {
            division.members.resize(division.processes, 0);
            for (member, changed) in division.members.iter_mut().zip(changed) {
                if *changed {
                    *member = epoch;
                }
            }
        }
    }

    /// Whether no run has begun since the state was divided.
    pub(crate) fn is_new_division(&self) -> bool {
        self.outputs.iter().any(|outputs| outputs.kept)
    }

    /// In the first run on a state that was divided anew: gives the sinks the tokens from before that belong to this
    /// process. Process 0 keeps those of processes that may come again. `scope` returns what the tokens of a sink belong
    /// to, and `None` for one that is no longer in the flow, which the check of the flow reports.
    pub(crate) fn take_outputs(
        &mut self,
        process: Option<usize>,
        scope: impl Fn(&str) -> Option<Scope>,
    ) {
        for outputs in &self.outputs {
            let belongs = |mark: &&SinkMark| match scope(&mark.sink) {
                Some(Scope::Path) => outputs.process == process,
                Some(Scope::Workers) => true,
                Some(Scope::State) | None => outputs.is_at(process),
            };
            let taken = outputs.sinks.iter().filter(belongs);
            self.sinks.extend(taken.cloned());
        }
        let keeps = process.unwrap_or(0) == 0;
        self.outputs
            .retain(|outputs| keeps && outputs.process != process);
        for outputs in &mut self.outputs {
            outputs.kept = false;
        }
    }
}

/// The state directory of process `process` of a flow whose state is in `dir`.
#[must_use]
pub fn process_dir(dir: impl AsRef<Path>, process: usize) -> PathBuf {
    dir.as_ref().join(format!("p{process}"))
}

/// The numbers of the processes whose state directories are in `dir`, in order.
///
/// # Errors
/// The directory cannot be read. One that does not exist has none.
pub fn processes_in(dir: impl AsRef<Path>) -> std::io::Result<Vec<usize>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('p'));
        let number = number.and_then(|digits| digits.parse::<usize>().ok());
        let number = number.filter(|number| name.to_str() == Some(&format!("p{number}")));
        if entry.path().join("epochs").is_dir() {
            found.extend(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Checks that the state in `dir` is divided among as many processes as the run has: of one process without a cluster in
/// `dir` itself, and else in a directory of each.
pub(crate) fn check_layout(dir: &Path, membership: Option<Membership>) -> Result<(), FlowError> {
    let refuse = |cause: String| {
        Err(FlowError::State {
            path: dir.to_owned(),
            cause: cause.into(),
        })
    };
    if let Some(processes) = interrupted(dir) {
        return refuse(format!(
            "its division among other processes was interrupted; complete it: millstream scale {} --processes {processes}",
            dir.display()
        ));
    }
    match membership {
        None => {
            let found = processes_in(dir).unwrap_or_default();
            match found.last() {
                Some(last) => refuse(format!(
                    "it is divided among processes (p{last} is one); start the flow with their number, or divide it anew: \
                     millstream scale {} --processes 1",
                    dir.display()
                )),
                None => Ok(()),
            }
        }
        Some(membership) => match dir.join("epochs").exists() {
            true => refuse(format!(
                "it is the state of one process, and {processes} are started; divide it: millstream scale {} --processes {processes}",
                dir.display(),
                processes = membership.processes
            )),
            false => Ok(()),
        },
    }
}

/// Checks that a commit is of this process, in a division among as many processes with as many workers.
pub(crate) fn check_division(
    dir: &Path,
    commit: &Commit,
    membership: Option<Membership>,
    workers: usize,
) -> Result<(), FlowError> {
    let Some(saved) = &commit.division else {
        return Ok(());
    };
    let cause = match membership {
        None => format!(
            "it is the part of process {} of {}, and cannot be used alone; give the directory above it",
            saved.process, saved.processes
        ),
        Some(membership) if membership.process != saved.process => format!(
            "it is the part of process {}, and this is process {}",
            saved.process, membership.process
        ),
        Some(membership) if (saved.processes, saved.workers) != (membership.processes, workers) => {
            format!(
                "it is divided among {} processes with {} worker(s) each, and {} with {workers} are started; divide it anew: millstream \
                 scale {} --processes {} --workers {workers}",
                saved.processes,
                saved.workers,
                membership.processes,
                dir.parent().unwrap_or(dir).display(),
                membership.processes
            )
        }
        Some(_) => return Ok(()),
    };
    Err(FlowError::State {
        path: dir.to_owned(),
        cause: cause.into(),
    })
}

/// The file with the number of the last epoch of a process that ended after everything was committed and its sinks were
/// notified.
const STOPPED: &str = "stopped";

/// Records that the process has ended after epoch `epoch` with nothing left to do.
pub(crate) fn write_stopped(dir: &Path, epoch: u64) -> Result<(), FlowError> {
    let written = std::fs::write(dir.join(STOPPED), format!("{epoch}\n"));
    written.map_err(|error| store::failed(dir, error))
}

/// Removes that record when a run begins.
pub(crate) fn clear_stopped(dir: &Path) -> Result<(), FlowError> {
    let path = dir.join(STOPPED);
    if !path.exists() {
        return Ok(());
    }
    let removed = std::fs::remove_file(&path).and_then(|()| sync_entry(&path));
    removed.map_err(|error| store::failed(dir, error))
}

/// Whether a process has ended after this epoch with nothing left to do.
pub(crate) fn has_stopped(dir: &Path, epoch: u64) -> bool {
    let text = std::fs::read_to_string(dir.join(STOPPED));
    text.is_ok_and(|text| text.trim().parse() == Ok(epoch))
}
