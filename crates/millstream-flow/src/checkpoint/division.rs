//! The division of a flow's state among the processes of a cluster.
//!
//! Each process has a state directory of its own, `DIR/p0`, `DIR/p1`, ... It has the shards of its workers, the
//! positions of the partitions that these read, and the tokens of their sinks. Every commit says which part of which
//! division it is, so that a directory never serves in another one.
//!
//! Invariant: the commit records of process 0 have the last epoch in which each process had changes. A directory whose
//! last epoch is another one is an older copy, or not of this state.

use std::path::Path;

use millstream_journal::storage::sync_entry;

use super::directories::processes_in;
use super::record::{Commit, SinkMark};
use super::store;
use super::switch::interrupted;
use crate::cluster::Membership;
use crate::error::FlowError;
use crate::sink::Scope;

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
