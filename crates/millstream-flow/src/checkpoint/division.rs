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
use super::record::{Commit, OutputMarks, SinkMark};
use super::sinks::Ownership;
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
    /// process. Process 0 keeps those of processes that may come again. `ownership` returns what the tokens of a sink belong
    /// to, and `None` for one that is no longer in the flow, which the check of the flow reports.
    pub(crate) fn take_outputs(
        &mut self,
        process: Option<usize>,
        ownership: impl Fn(&str) -> Option<Ownership>,
    ) {
        let mut continued = Vec::new();
        for outputs in &self.outputs {
            for mark in &outputs.sinks {
                let owned = ownership(&mark.sink);
                if !belongs(outputs, mark, owned, process) {
                    continue;
                }
                let gathered = owned.is_some_and(|owned| owned.gathered);
                let is_one = is_of_one(outputs, mark);
                self.sinks.push(SinkMark {
                    gathered: process.is_some() && (mark.gathered || gathered && is_one),
                    ..mark.clone()
                });
                if is_one && (gathered || process.is_none()) {
                    continued.push(mark.sink.clone());
                }
            }
        }
        // The token of the one output of all processes is the newest only.
        for outputs in &mut self.outputs {
            let is_alone = outputs.process.is_none();
            outputs
                .sinks
                .retain(|mark| !((is_alone || mark.gathered) && continued.contains(&mark.sink)));
        }
        let keeps = process.unwrap_or(0) == 0;
        self.outputs
            .retain(|outputs| keeps && outputs.process != process);
        for outputs in &mut self.outputs {
            outputs.kept = false;
        }
    }
}

/// Whether a token is of a sink that one process wrote for all.
fn is_of_one(outputs: &OutputMarks, mark: &SinkMark) -> bool {
    outputs.process.is_none() || mark.gathered
}

/// Whether the token that a process had before the state was divided anew belongs to process `process` now. Process 0 gets
/// tokens that its sink cannot continue too, which [`check_gathered`] reports.
fn belongs(
    outputs: &OutputMarks,
    mark: &SinkMark,
    owned: Option<Ownership>,
    process: Option<usize>,
) -> bool {
    let Some(Ownership { scope, gathered }) = owned else {
        return outputs.is_at(process);
    };
    let is_one = is_of_one(outputs, mark);
    let (is_first, is_alone) = (process == Some(0), process.is_none());
    match scope {
        _ if gathered && !is_alone && !is_first => false,
        Scope::State => outputs.is_at(process),
        Scope::Path | Scope::Workers if is_one && (is_alone || gathered) => true,
        _ if !is_alone && (gathered || mark.gathered) => outputs.is_at(process),
        Scope::Path => outputs.process == process,
        Scope::Workers => true,
    }
}

/// Checks that the sinks whose output a process resumes are gathered if and only if they were in the run before. `ownership` is
/// as for [`Commit::take_outputs`].
pub(crate) fn check_gathered(
    commit: &Commit,
    ownership: impl Fn(&str) -> Option<Ownership>,
) -> Result<(), String> {
    for mark in &commit.sinks {
        let (name, owned) = (&mark.sink, ownership(&mark.sink));
        match owned.map(|owned| owned.gathered) {
            Some(gathered) if gathered != mark.gathered => {}
            _ => continue,
        }
        let (before, now) = match mark.gathered {
            true => ("was gathered", "is not"),
            false => ("was written by each process", "is gathered"),
        };
        return Err(format!(
            "sink \"{name}\" {before} in the run before, and {now} now; define it as before, give it another name, or begin new output \
             with --drop-state \"{name}\""
        ));
    }
    Ok(())
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
