//! Divides the state of a flow among another number of processes or workers, while the flow does not run.
//!
//! The keys of each shard move to the state directory of the process that has its worker. Positions and event times are
//! merged, and each process gets all of them. What belongs to a directory as a whole (an outbox, the input that a source
//! has recorded) stays with the process of that number.
//!
//! Invariant: a state directory has the old division or the new one, whole. New directories are written and synced in
//! `DIR/scaling/next`; then `DIR/scaling/plan` appears, which is the decision; then directories are renamed (see `switch`),
//! and a crash in between is completed by the next call. A run refuses to begin while there is a plan.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directories::{Layout, names, process_dir, processes_in};
use super::division::{STOPPED, check_layout, has_stopped, undelivered, write_stopped};
use super::moved_sources::{self, Moved};
use super::opened::Opened;
use super::record::{Commit, Division, OutputMarks, SourceMark};
use super::store::{Saved, Store, failed};
use super::switch::{self, Plan};
use crate::clock::now_ns;
use crate::cluster::{CommitId, Membership};
use crate::error::{Cause, FlowError};
use crate::key::worker_of;
use crate::state::changes::Changes;

/// What was done by [`rescale`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescaled {
    /// The number of processes before.
    pub from: usize,
    /// The number of processes now.
    pub processes: usize,
    /// The workers of each process now.
    pub workers: usize,
    /// The last committed epoch.
    pub epoch: u64,
    /// The keys of all steps.
    pub keys: u64,
    /// The bytes of keys and states.
    pub bytes: u64,
    /// The processes that there are no longer, with the sources that they read from their own machines: what they have not read stays
    /// unread until a process of this number runs there again.
    pub left: Vec<(usize, String)>,
    /// The time that it took.
    pub elapsed: Duration,
}

/// An old state directory.
struct Old {
    /// The number of the process; `None` for a run without a cluster.
    process: Option<usize>,
    store: Store,
    commit: Commit,
}

/// Divides the state in `dir`, the directory that runs were given, among `processes` processes with `workers` workers each
/// (`None`: as before). With one process the state becomes that of a run without a cluster. The flow must have been
/// stopped; nothing is changed if there is an error, except that a division that was interrupted before is completed.
///
/// ```no_run
/// let done = millstream_flow::checkpoint::rescale("state", 4, None)?;
/// println!("{} keys on {} processes in {:?}", done.keys, done.processes, done.elapsed);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
///
/// # Errors
/// There is no state; a process is missing, was killed, or has output that is not delivered or recorded input that is not
/// processed: the flow must be started once more as before, and stopped. The directory cannot be read or written.
pub fn rescale(
    dir: impl AsRef<Path>,
    processes: usize,
    workers: Option<usize>,
) -> Result<Rescaled, FlowError> {
    let dir = dir.as_ref();
    let began = now_ns();
    if processes == 0 || workers == Some(0) {
        return Err(FlowError::Usage(
            "a state is divided among one process or more, with one worker or more each".to_owned(),
        ));
    }
    if let Some(plan) = Plan::of(dir) {
        plan.complete(dir).map_err(|cause| failed(dir, cause))?;
    }
    let (old, unused) = open(dir)?;
    let first = &old[0].commit;
    let before = first.division.as_ref();
    let workers = workers.unwrap_or(before.map_or(first.workers.max(1), |before| before.workers));
    first.shards.check_workers(processes * workers)?;
    let (from, to) = (
        Layout::of(old[0].process, old.len()),
        Layout::among(processes),
    );
    for old in &old {
        check_delivered(old)?;
    }
    let moved = moved_sources::of(&commits_of(&old), to)?;
    for own in &unused {
        std::fs::remove_dir_all(own).map_err(|cause| failed(own, cause))?;
    }
    let (keys, bytes) = write(dir, &old, &moved, (processes, workers))?;
    let mut done = Rescaled {
        from: old.len(),
        processes,
        workers,
        epoch: first.epoch,
        keys,
        bytes,
        left: left(&old, processes),
        elapsed: Duration::ZERO,
    };
    // The journals must be closed before their directories are renamed.
    drop(old);
    let plan = Plan {
        from,
        to,
        aside: moved.aside,
    };
    let switched = plan.decide(dir).and_then(|()| plan.complete(dir));
    switched.map_err(|cause| failed(dir, cause))?;
    done.elapsed = Duration::from_nanos(now_ns().saturating_sub(began));
    Ok(done)
}

/// The local sources of processes that are gone.
fn left(old: &[Old], processes: usize) -> Vec<(usize, String)> {
    let marks = old.iter().flat_map(|old| &old.commit.sources);
    let gone = marks.filter_map(|mark| Some((mark.local?, mark.source.clone())));
    let gone: BTreeSet<_> = gone.filter(|(process, _)| *process >= processes).collect();
    gone.into_iter().collect()
}

fn commits_of(old: &[Old]) -> Vec<(&Path, &Commit)> {
    old.iter()
        .map(|old| (old.store.dir(), &old.commit))
        .collect()
}

/// Opens the state directories of all processes, and checks that they are those of one division, stopped at one epoch. Returns also
/// the directories that a start with more processes has made, which was refused.
fn open(dir: &Path) -> Result<(Vec<Old>, Vec<PathBuf>), FlowError> {
    let refuse = |cause: String| failed(dir, cause);
    let found = processes_in(dir).map_err(|error| failed(dir, error))?;
    let numbers: Vec<Option<usize>> = match (dir.join("epochs").is_dir(), &found[..]) {
        (false, []) => return Err(refuse("it is not the state directory of a flow".to_owned())),
        (true, []) => vec![None],
        (true, _) => {
            return Err(refuse(
                "it has the state of one process and that of several; move one of them away"
                    .to_owned(),
            ));
        }
        (false, found) => found.iter().copied().map(Some).collect(),
    };
    let (mut all, mut empty) = (Vec::<Old>::new(), Vec::new());
    for process in numbers {
        let own = process.map_or_else(|| dir.to_owned(), |process| process_dir(dir, process));
        let opened = Opened::open(&own, true)?;
        let Some(commit) = opened.commit().cloned() else {
            empty.push((process, own, opened.prepared().is_some()));
            continue;
        };
        let again = "start the flow once more as before, let it commit, and stop it";
        // A run that was killed may have written more than was committed.
        if !has_stopped(&own, commit.epoch) || opened.prepared().is_some() {
            let cause =
                format!("the process was killed or has failed since its last start; {again}");
            return Err(failed(&own, cause));
        }
        let store = opened.truncate()?;
        all.push(Old {
            process,
            store,
            commit,
        });
    }
    for (process, own, has_prepared) in &empty {
        if *has_prepared || !is_of_refused(*process, own, all.first()) {
            return Err(failed(own, "the flow has committed nothing yet"));
        }
    }
    check_complete(dir, &all)?;
    Ok((all, empty.into_iter().map(|(_, own, _)| own).collect()))
}

/// Whether a directory without a commit is what a start with more processes has left that was refused: the process has no part in the
/// division, and there is nothing but an empty journal of epochs.
fn is_of_refused(process: Option<usize>, own: &Path, one: Option<&Old>) -> bool {
    let division = one.and_then(|one| one.commit.division.as_ref());
    let more = process
        .zip(division)
        .is_some_and(|(process, division)| process >= division.processes);
    // What cannot be listed is not removed.
    let is_empty = names(own).is_ok_and(|entries| {
        let mut entries = entries.iter();
        entries.all(|name| ["epochs", STOPPED].contains(&name.as_str()))
    });
    more && is_empty
}

/// Checks that these are all directories of one division.
fn check_complete(dir: &Path, all: &[Old]) -> Result<(), FlowError> {
    let Some(first) = all[0].commit.division.as_ref() else {
        let membership = all[0].process.map(|process| Membership {
            process,
            processes: all.len(),
        });
        return check_layout(dir, membership);
    };
    for number in 0..first.processes {
        let Some(old) = all.iter().find(|old| old.process == Some(number)) else {
            let cause = format!(
                "the state is divided among {} processes, and p{number} is missing; copy the directories of all of them here",
                first.processes
            );
            return Err(failed(dir, cause));
        };
        let is_of_same = old.commit.division.as_ref().is_some_and(|division| {
            division.cluster == first.cluster && division.processes == first.processes
        });
        let last = first.members.get(number).copied().unwrap_or_default();
        if !is_of_same || last != old.commit.id() && number != 0 {
            let cause = format!(
                "it does not belong to p0, whose last commit has epoch {} of run {:016x} of it: an older copy, a copy that has gone on by \
                 itself, or another directory",
                last.epoch, last.run
            );
            return Err(failed(old.store.dir(), cause));
        }
    }
    match all.len() == first.processes {
        true => Ok(()),
        false => Err(failed(
            dir,
            format!(
                "it has directories of {} processes, and the state is divided among {}",
                all.len(),
                first.processes
            ),
        )),
    }
}

/// Checks that the outboxes of a directory have delivered everything: a key that moves may have output in another one next.
fn check_delivered(old: &Old) -> Result<(), FlowError> {
    let check = || -> Result<(), Cause> {
        match undelivered(old.store.dir())? {
            None => Ok(()),
            Some((left, sink)) => Err(format!(
                "{left} records of sink \"{sink}\" are not delivered; start the flow once more as before, let it deliver them, and stop it"
            )
            .into()),
        }
    };
    check().map_err(|cause| failed(old.store.dir(), cause))
}

/// Writes the new directories; returns the number of keys and their bytes.
fn write(
    dir: &Path,
    old: &[Old],
    moved: &Moved,
    (processes, workers): (usize, usize),
) -> Result<(u64, u64), FlowError> {
    let next = switch::begin(dir).map_err(|cause| failed(dir, cause))?;
    let mut stores = Vec::new();
    for process in 0..processes {
        let own = process_dir(&next, process);
        stores.push(Opened::open(&own, true)?.truncate()?);
    }
    let place = |shard: usize| worker_of(shard, processes * workers) / workers;
    let (mut keys, mut bytes) = (0, 0);
    for old in old {
        for part in 0..Saved::PARTS {
            for step in old.store.saved().steps() {
                let moved = move_part(old, step, part, &mut stores, &place)?;
                keys += moved.0;
                bytes += moved.1;
            }
        }
    }
    let merged = merge(old, moved, Layout::among(processes));
    let cluster = stores[0].lineage()?;
    for (process, store) in stores.iter_mut().enumerate() {
        let mut commit = merged.clone();
        add_local(&mut commit, old, (process, processes));
        if process > 0 {
            commit.sources.retain(|mark| !moved.is_of_first(mark));
        }
        let commit_id = CommitId {
            epoch: commit.epoch,
            run: cluster,
        };
        if processes > 1 {
            commit.division = Some(Division {
                cluster,
                run: cluster,
                process,
                processes,
                workers,
                members: match process {
                    0 => vec![commit_id; processes],
                    _ => Vec::new(),
                },
                partitions: Vec::new(),
                read_by_first: Vec::new(),
            });
        }
        store.commit(Vec::new(), &commit)?;
        write_stopped(store.dir(), commit.epoch)?;
        moved
            .write_files(&process_dir(&next, process), process)
            .map_err(|cause| failed(dir, cause))?;
    }
    Ok((keys, bytes))
}

/// Moves the keys of a step in one part of the shards to the stores of their processes.
fn move_part(
    old: &Old,
    step: &str,
    part: usize,
    stores: &mut [Store],
    place: &impl Fn(usize) -> usize,
) -> Result<(u64, u64), FlowError> {
    let (mut count, mut bytes) = (0, 0);
    let shards = old.commit.shards;
    let mut changes: Vec<Option<Changes>> = stores.iter().map(|_| None).collect();
    for saved in old.store.saved().part(step, part, |_| true)? {
        let changes = changes[place(saved.shard)].get_or_insert_with(|| Changes::new(step, shards));
        let state = (saved.tag, &saved.state[..]);
        changes.copy(saved.shard, saved.born, &saved.key, state);
        count += 1;
        bytes += (saved.key.len() + saved.state.len()) as u64;
    }
    for (store, changes) in stores.iter_mut().zip(changes) {
        let records: Vec<_> = changes.into_iter().flat_map(Changes::records).collect();
        if !records.is_empty() {
            store.append(&records)?;
        }
    }
    Ok((count, bytes))
}

/// Adds what a process reads from its own machine. Process 0 keeps the positions of machines that are gone, which may come again.
fn add_local(commit: &mut Commit, old: &[Old], (process, processes): (usize, usize)) {
    let marks = old.iter().flat_map(|old| &old.commit.sources);
    let belongs = |of: usize| of == process || (process == 0 && of >= processes);
    let marks = marks.filter(|mark| mark.local.is_some_and(belongs));
    commit.sources.extend(marks.cloned());
    if let Some(own) = old.get(process) {
        let sources = local_sources(old);
        let times = own.commit.watermarks.iter();
        let times = times.filter(|mark| sources.contains(mark.step.as_str()));
        commit.watermarks.extend(times.cloned());
    }
}

/// The sources that each process reads from its own machine.
fn local_sources(old: &[Old]) -> BTreeSet<&str> {
    let marks = old.iter().flat_map(|old| &old.commit.sources);
    let local = marks.filter(|mark| mark.local.is_some());
    local.map(|mark| mark.source.as_str()).collect()
}

/// The commit of all directories, apart from the division and from what each process reads from its own machine.
fn merge(old: &[Old], moved: &Moved, to: Layout) -> Commit {
    let mut merged = Commit {
        // The keys of a worker are others now, which the next run sees by this number.
        workers: 0,
        finished: old.iter().all(|old| old.commit.finished),
        sources: Vec::new(),
        sinks: Vec::new(),
        watermarks: Vec::new(),
        division: None,
        outputs: outputs(old, to),
        ..old[0].commit.clone()
    };
    let local = local_sources(old);
    for (number, old) in old.iter().enumerate() {
        merged.processing_ns = merged.processing_ns.max(old.commit.processing_ns);
        let times = old.commit.watermarks.iter();
        for mark in times.filter(|mark| !local.contains(mark.step.as_str())) {
            let mut known = merged.watermarks.iter_mut();
            match known.find(|known| known.step == mark.step && known.partition == mark.partition) {
                Some(known) => known.at = known.at.max(mark.at),
                None => merged.watermarks.push(mark.clone()),
            }
        }
        for mark in old
            .commit
            .sources
            .iter()
            .filter(|mark| mark.local.is_none())
        {
            let is_read_here = moved.reader(mark).is_none_or(|reader| reader == number);
            let is_known = |known: &SourceMark| {
                known.source == mark.source && known.partition == mark.partition
            };
            if is_read_here && !merged.sources.iter().any(is_known) {
                merged.sources.extend(moved.mark(mark));
            }
        }
    }
    merged
}

/// The tokens of the sinks of all processes, and of those that were there before.
fn outputs(old: &[Old], to: Layout) -> Vec<OutputMarks> {
    let first = &old[0].commit;
    let mut all = first.outputs.clone();
    if !first.is_new_division() {
        for old in old {
            all.retain(|outputs| outputs.process != old.process);
            all.push(OutputMarks {
                process: old.process,
                kept: true,
                sinks: old.commit.sinks.clone(),
            });
        }
    }
    for outputs in &mut all {
        outputs.kept &= outputs.process.unwrap_or(0) < to.processes();
    }
    all
}
