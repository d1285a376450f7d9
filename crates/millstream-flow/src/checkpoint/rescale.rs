//! Divides the state of a flow among another number of processes or workers, while the flow does not run.
//!
//! The keys of each shard move to the state directory of the process that has its worker. Positions and event times are
//! merged, and each process gets all of them. What belongs to a directory as a whole (an outbox, the input that a
//! source has recorded) stays with the process of that number.
//!
//! Invariant: a state directory has the old division or the new one, whole. New directories are written and synced in
//! `DIR/scaling/next`; then `DIR/scaling/plan` appears, which is the decision; then directories are renamed (see
//! `switch`), and a crash in between is completed by the next call. A run refuses to begin while there is a plan.

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
use crate::cluster::{CommitId, Membership, resolve};
use crate::error::{Cause, FlowError};
use crate::key::worker_of;
use crate::saved::changes::Changes;

const NOTHING_YET: &str = "the flow has committed nothing yet";

/// What was done by [`rescale`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
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
    /// The processes that there are no longer, with the sources that they read from their own machines: what they have
    /// not read stays unread until a process of this number runs there again.
    pub left: Vec<(usize, String)>,
    /// The processes that were killed and that there are no longer: what they have written after their last commit
    /// stays in their outputs, and is written once more by others.
    pub with_output: Vec<usize>,
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

/// The same, open, before it is brought to its last epoch.
struct Found {
    process: Option<usize>,
    opened: Opened,
    keeps_prepared: bool,
}

impl Found {
    /// The directory at its last epoch, which is the prepared one if that is kept.
    fn at_last_epoch(self) -> Result<Old, FlowError> {
        let store = if self.keeps_prepared {
            self.opened.keep()?
        } else {
            self.opened.truncate()?
        };
        let Some(commit) = store.saved().commit().cloned() else {
            return Err(failed(store.dir(), NOTHING_YET));
        };
        Ok(Old {
            process: self.process,
            store,
            commit,
        })
    }

    /// Whether the process was stopped or has ended, with nothing left to do.
    fn has_stopped(&self) -> bool {
        self.opened.prepared().is_none() && has_stopped(self.opened.dir(), self.epoch())
    }

    /// The last committed epoch of the directory; 0 if there is none.
    fn epoch(&self) -> u64 {
        self.opened.commit().map_or(0, |commit| commit.epoch)
    }

    /// Whether a process of the same number resumes the outputs.
    fn is_continued(&self, to: Layout) -> bool {
        let of_same_kind = self.process.is_none() == (to == Layout::Single);
        of_same_kind && self.process.unwrap_or(0) < to.processes()
    }
}

/// Divides the state in `dir`, the directory that runs were given, among `processes` processes with `workers` workers
/// each (`None`: as before). With one process the state becomes that of a run without a cluster. The flow must not run;
/// after a crash the state is that of the last epoch that process 0 has committed, as at a start.
///
/// A process that was killed may have written output after that epoch, which the process of its number removes when it
/// starts. Where none of this number follows (or one process without a cluster becomes several, or the reverse), the
/// division is refused, unless `leave_output` says that the output may stay as it is.
///
/// ```no_run
/// let done = millstream_flow::checkpoint::rescale("state", 4, None, false)?;
/// println!("{} keys on {} processes in {:?}", done.keys, done.processes, done.elapsed);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
///
/// # Errors
/// There is no state; a process is missing, would leave output, or has output that is not delivered or recorded input
/// that is not processed: the flow must be started once more as before, and stopped. The directory cannot be read or
/// written. Nothing is changed then, except that a division that was interrupted before is completed, and each
/// directory may be brought to its last epoch, as at a start.
#[doc(hidden)] // For the other crates of Millstream.
pub fn rescale(
    dir: impl AsRef<Path>,
    processes: usize,
    workers: Option<usize>,
    leave_output: bool,
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
    let to = Layout::among(processes);
    let (found, unused) = open(dir)?;
    let with_output = with_output(&found, to);
    if let (Some((process, epoch)), false) = (with_output.first(), leave_output) {
        return Err(would_leave_output(dir, *process, *epoch));
    }
    let old = found.into_iter().map(Found::at_last_epoch);
    let old = old.collect::<Result<_, _>>()?;
    let mut done = divide(dir, old, &unused, (processes, workers))?;
    done.with_output = with_output
        .into_iter()
        .map(|(process, _)| process)
        .collect();
    done.elapsed = Duration::from_nanos(now_ns().saturating_sub(began));
    Ok(done)
}

fn would_leave_output(dir: &Path, process: usize, epoch: u64) -> FlowError {
    let cause = format!(
        "process {process} was killed or has failed, and no process with its number will remove what it wrote after epoch {epoch}: start \
         the flow once more as before, and stop it; or, if its output is lost with its machine or may have records twice, leave it as it \
         is (--leave-output)"
    );
    failed(dir, cause)
}

/// Writes the new division and switches to it.
fn divide(
    dir: &Path,
    old: Vec<Old>,
    unused: &[PathBuf],
    (processes, workers): (usize, Option<usize>),
) -> Result<Rescaled, FlowError> {
    let first = &old[0].commit;
    let before = first.division.as_ref();
    let workers = workers.unwrap_or(before.map_or(first.workers.max(1), |before| before.workers));
    first.shards.check_workers(processes * workers)?;
    let from = Layout::of(old[0].process, old.len());
    let to = Layout::among(processes);
    for old in &old {
        check_delivered(old)?;
    }
    let moved = moved_sources::of(&commits_of(&old), to)?;
    for own in unused {
        std::fs::remove_dir_all(own).map_err(|cause| failed(own, cause))?;
    }
    let (keys, bytes) = write(dir, &old, &moved, (processes, workers))?;
    let done = Rescaled {
        from: old.len(),
        processes,
        workers,
        epoch: first.epoch,
        keys,
        bytes,
        left: left(&old, processes),
        with_output: Vec::new(),
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

/// Opens the state directories of all processes, and checks that they belong together. Returns also the directories
/// that a start with more processes has made, which was refused.
fn open(dir: &Path) -> Result<(Vec<Found>, Vec<PathBuf>), FlowError> {
    let mut opened = Vec::new();
    let mut unused = Vec::new();
    for process in numbers(dir)? {
        let own = process.map_or_else(|| dir.to_owned(), |process| process_dir(dir, process));
        opened.push((process, Opened::open(&own, true)?));
    }
    let division = match opened[0].1.commit() {
        None => return Err(failed(dir, NOTHING_YET)),
        Some(first) => first.division.clone(),
    };
    let kept = match &division {
        None => {
            let processes = opened.len();
            let membership = opened[0].0.map(|process| Membership { process, processes });
            check_layout(dir, membership)?;
            vec![false; processes]
        }
        Some(division) => {
            let (of_refused, parts) = opened
                .into_iter()
                .partition(|(process, opened)| is_of_refused(*process, opened, division));
            opened = parts;
            unused = of_refused;
            resolved(dir, &opened, division.processes)?
        }
    };
    let found = opened.into_iter().zip(kept);
    let found = found.map(|((process, opened), keeps_prepared)| Found {
        process,
        opened,
        keeps_prepared,
    });
    let unused = unused
        .into_iter()
        .map(|(_, opened)| opened.dir().to_owned());
    Ok((found.collect(), unused.collect()))
}

/// The processes that have directories; `None` for a run without a cluster.
fn numbers(dir: &Path) -> Result<Vec<Option<usize>>, FlowError> {
    let refuse = |cause: &str| failed(dir, cause.to_owned());
    let found = processes_in(dir).map_err(|error| failed(dir, error))?;
    match (dir.join("epochs").is_dir(), &found[..]) {
        (false, []) => Err(refuse("it is not the state directory of a flow")),
        (true, []) => Ok(vec![None]),
        (true, _) => Err(refuse(
            "it has the state of one process and that of several; move one of them away",
        )),
        (false, found) => Ok(found.iter().copied().map(Some).collect()),
    }
}

/// Whether a directory is what a start with more processes has left that was refused: the process has no part in the
/// division, and there is nothing but an empty journal of epochs.
fn is_of_refused(process: Option<usize>, opened: &Opened, division: &Division) -> bool {
    let is_more = process.is_some_and(|process| process >= division.processes);
    // What cannot be listed is not removed.
    let is_empty = names(opened.dir()).is_ok_and(|entries| {
        let mut entries = entries.iter();
        entries.all(|name| ["epochs", STOPPED].contains(&name.as_str()))
    });
    is_more && is_empty && opened.commit().is_none() && opened.prepared().is_none()
}

/// Checks that these are all directories of one division; returns whether each keeps its prepared epoch.
fn resolved(
    dir: &Path,
    opened: &[(Option<usize>, Opened)],
    processes: usize,
) -> Result<Vec<bool>, FlowError> {
    let present = |number| opened.iter().any(|(process, _)| *process == Some(number));
    if let Some(number) = (0..processes).find(|number| !present(*number)) {
        let cause = format!(
            "the state is divided among {processes} processes, and p{number} is missing; copy the directories of all of them here"
        );
        return Err(failed(dir, cause));
    }
    if opened.len() > processes {
        let cause = format!(
            "it has directories of {} processes, and the state is divided among {processes}",
            opened.len()
        );
        return Err(failed(dir, cause));
    }
    let zero = opened[0].1.offer();
    let mut kept = vec![false];
    for (number, (_, opened)) in opened.iter().enumerate().skip(1) {
        let is_kept = resolve(number, processes, &zero, &opened.offer());
        kept.push(is_kept.map_err(|cause| failed(opened.dir(), cause))?);
    }
    Ok(kept)
}

/// The processes that may have written output after their last commit which no process of the new division removes,
/// with the epochs of those commits.
fn with_output(found: &[Found], to: Layout) -> Vec<(usize, u64)> {
    let killed = found
        .iter()
        .filter(|found| !found.has_stopped() && !found.is_continued(to));
    killed
        .map(|found| (found.process.unwrap_or(0), found.epoch()))
        .collect()
}

/// Checks that the outboxes of a directory have delivered everything: a key that moves may have output in another one
/// next.
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
    let mut keys = 0;
    let mut bytes = 0;
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
    let mut count = 0;
    let mut bytes = 0;
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

/// Adds what a process reads from its own machine. Process 0 keeps the positions of machines that are gone, which may
/// come again.
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
        let steps = old.commit.steps.iter().cloned();
        steps.for_each(|mark| merged.put_step(mark));
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
