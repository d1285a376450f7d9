//! The division of a flow's state among the processes of a cluster.
//!
//! Each process has a state directory of its own, `DIR/p0`, `DIR/p1`, ... It has the shards of its workers, the
//! positions of the partitions that these read, and the tokens of their sinks. Every commit says which part of which
//! division it is, so that a directory never serves in another one.
//!
//! Invariant: the commit records of process 0 have the last commit in which each process had changes. A directory whose
//! last commit is another one is an older copy, or not of this state.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use millstream_journal::storage::sync_entry;
use millstream_journal::{Journal, Options};

use super::directories::processes_in;
use super::record::{Commit, OutputMarks, SinkMark};
use super::store;
use super::switch::interrupted;
use crate::cluster::{CommitId, Membership};
use crate::durable::unescape;
use crate::error::{Cause, FlowError};
use crate::key::{Key, Shards};
use crate::named::drop_state;
use crate::outbox::{self, REFUSED_SUFFIX};
use crate::sink::Scope;

/// What the tokens of a sink of this flow belong to, and whether one process writes the output of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    pub(crate) scope: Scope,
    pub(crate) gathered: bool,
}

impl Commit {
    /// Process 0: records that the processes with changes have them in this epoch.
    pub(crate) fn note_changes(&mut self, changed: &[bool]) {
        let id = self.id();
        if let Some(division) = &mut self.division {
            let none = CommitId::default();
            division.members.resize(division.processes, none);
            for (member, changed) in division.members.iter_mut().zip(changed) {
                if *changed {
                    *member = id;
                }
            }
        }
    }

    /// Whether no run has begun since the state was divided.
    pub(crate) fn is_new_division(&self) -> bool {
        self.outputs.iter().any(|outputs| outputs.kept)
    }

    /// In the first run on a state that was divided anew: gives the sinks the tokens from before that belong to this
    /// process. Process 0 keeps those of processes that may come again. `ownership` returns what the tokens of a sink
    /// belong to, and `None` for one that is no longer in the flow, which the check of the flow reports.
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

/// Whether the token that a process had before the state was divided anew belongs to process `process` now. Process 0
/// gets tokens that its sink cannot continue too, which [`check_gathered`] reports.
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
    let is_first = process == Some(0);
    let is_alone = process.is_none();
    match scope {
        _ if gathered && !is_alone && !is_first => false,
        Scope::State => outputs.is_at(process),
        Scope::Path | Scope::Workers if is_one && (is_alone || gathered) => true,
        _ if !is_alone && (gathered || mark.gathered) => outputs.is_at(process),
        Scope::Path => outputs.process == process,
        Scope::Workers => true,
    }
}

/// Checks that the sinks whose output a process resumes are gathered if and only if they were in the run before.
/// `ownership` is as for [`Commit::take_outputs`].
pub(crate) fn check_gathered(
    commit: &Commit,
    ownership: impl Fn(&str) -> Option<Ownership>,
) -> Result<(), String> {
    for mark in &commit.sinks {
        let name = &mark.sink;
        let owned = ownership(&mark.sink);
        match owned.map(|owned| owned.gathered) {
            Some(gathered) if gathered != mark.gathered => {}
            _ => continue,
        }
        let (before, now) = if mark.gathered {
            ("was gathered", "is not")
        } else {
            ("was written by each process", "is gathered")
        };
        return Err(format!(
            "sink \"{name}\" {before} in the run before, and {now} now; define it as before, give it another name, or begin new output \
             with {}",
            drop_state(name)
        ));
    }
    Ok(())
}

/// Checks that the state in `dir` is divided among as many processes as the run has: of one process without a cluster
/// in `dir` itself, and else in a directory of each.
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
        Some(membership) => {
            if dir.join("epochs").exists() {
                refuse(format!(
                    "it is the state of one process, and {processes} are started; divide it: millstream scale {} --processes {processes}",
                    dir.display(),
                    processes = membership.processes
                ))
            } else {
                Ok(())
            }
        }
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

/// In the list of the partitions of a source: the place of one that is gone. No partition has this name.
pub(super) const GONE: &str = "\0";

/// Deals the partitions of a source to `readers` workers, equally in all processes, which know `before`: the list of
/// the run before. Returns the list of this run, where the worker of a partition is its number modulo `readers`, and
/// the worker of each of `names`.
///
/// A partition stays at the worker that it had, because its position is in the state of that process. One that is new
/// has the worker that its name stands for: it may have been found during the run before, and then that one has read
/// it.
pub(super) fn deal(
    names: &[String],
    before: Option<&[String]>,
    readers: usize,
    shards: Shards,
) -> (Vec<String>, Vec<usize>) {
    let Some(before) = before else {
        let in_turn = (0..names.len()).map(|number| number % readers);
        return (names.to_vec(), in_turn.collect());
    };
    let present: HashSet<&str> = names.iter().map(String::as_str).collect();
    let stays = |name: &String| {
        if present.contains(name.as_str()) {
            name.clone()
        } else {
            GONE.to_owned()
        }
    };
    let mut list: Vec<String> = before.iter().map(stays).collect();
    let known = list.iter().enumerate();
    let mut numbers: HashMap<String, usize> = known.map(|(at, name)| (name.clone(), at)).collect();
    let mut workers = Vec::new();
    for name in names {
        let number = *numbers.entry(name.clone()).or_insert_with(|| {
            let mut number = shards.worker(name.stable_hash(), readers);
            while list.get(number).is_some_and(|taken| taken != GONE) {
                number += readers;
            }
            if list.len() <= number {
                list.resize(number + 1, GONE.to_owned());
            }
            list[number].clone_from(name);
            number
        });
        workers.push(number % readers);
    }
    let end = list.iter().rposition(|name| name != GONE);
    list.truncate(end.map_or(0, |end| end + 1));
    (list, workers)
}

/// The file with the number of the last epoch of a process that ended after everything was committed and its sinks were
/// notified.
pub(super) const STOPPED: &str = "stopped";

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

/// Returns a sink of a state directory whose outbox has not delivered everything, with the number of its records.
pub(super) fn undelivered(dir: &Path) -> Result<Option<(u64, String)>, Cause> {
    let entries = match std::fs::read_dir(dir.join("outputs")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let left = outbox::undelivered(&Journal::open(&path, Options::read_only())?)?;
        if left > 0 {
            let name = path.file_name().and_then(|name| {
                let name = name.to_str()?;
                unescape(name.strip_suffix(REFUSED_SUFFIX).unwrap_or(name))
            });
            return Ok(Some((left, name.unwrap_or_default())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn partitions_stay_at_their_workers() {
        let shards = Shards::default();
        let (first, dealt) = deal(&names("b c d e"), None, 3, shards);
        assert_eq!((first.clone(), dealt), (names("b c d e"), vec![0, 1, 2, 0]));
        // Others before and after them, and one that is gone.
        let (second, dealt) = deal(&names("a b d e f"), Some(&first), 3, shards);
        let by_name = |name: &str| shards.worker(name.to_owned().stable_hash(), 3);
        assert_eq!(dealt, [by_name("a"), 0, 2, 0, by_name("f")]);
        // The next start deals them again by the list alone.
        let (third, again) = deal(&names("a b d e f"), Some(&second), 3, shards);
        assert_eq!((&third, &again), (&second, &dealt));
        // What only `c` had is given to others, and the list does not grow with what is gone.
        let mut list = third;
        for round in 0..100 {
            let new: Vec<String> = (0..3).map(|n| format!("{round}-{n}")).collect();
            (list, _) = deal(&new, Some(&list), 3, shards);
        }
        assert!(list.len() <= 9, "{list:?}");
        assert_eq!(deal(&[], Some(&list), 3, shards).0, names(""));
    }
}
