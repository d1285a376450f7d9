//! The start of a run with a state directory: checks the last commit against the flow, and rolls sinks and sources back
//! to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use super::Recovery;
use super::division::{GONE, check_division, check_gathered, clear_stopped, deal, write_stopped};
use super::first_positions::{first_positions, known_sources};
use super::fits::{FlowParts, check, check_dropped, check_owner, known_names};
use super::local::LocalPartitions;
use super::opened::Opened;
use super::record::{self, Commit, Division, SinkMark, SourceMark};
use super::replica::Replicated;
use super::resume::{Resume, rename_saved};
use super::store::{Store, failed};
use crate::cluster::{Event, JoinStopped, Joined, Membership, StateOffer};
use crate::error::{FlowError, chain};
use crate::key::Shards;
use crate::named::{FRESH, RESET_CLOCK, drop_state, shards};
use crate::node::{Node, NodeId, open_error};
use crate::panics::in_step;
use crate::source::{Beginning, Position, Recording};

/// The recordings of the sources of a run, which are notified of commits, with the nodes of their sources.
pub(crate) type Recordings = Vec<(NodeId, Arc<dyn Recording>)>;

/// The state with which a run with a state directory begins.
pub(crate) struct ResumedRun {
    pub(crate) store: Store,
    pub(crate) resume: Resume,
    pub(crate) commit: Commit,
    pub(crate) recordings: Recordings,
    /// The epoch before the first of the workers.
    pub(crate) base: u64,
    /// The run of several processes, which has committed an epoch already.
    pub(crate) joined: Option<Joined>,
    /// The state as it is served to other machines.
    pub(crate) replicated: Option<Replicated>,
    /// What this process reads from its own machine.
    pub(crate) local: LocalPartitions,
}

/// How a run of several processes begins.
pub(crate) struct ClusterStart<'a> {
    pub(crate) membership: Membership,
    /// Meets the other processes.
    pub(crate) join: &'a dyn Fn(StateOffer, Shards) -> Result<Option<Joined>, FlowError>,
    /// Stops this process, as another one was asked to stop.
    pub(crate) stop: &'a dyn Fn(),
}

/// Opens the state directory, checks that it belongs to this flow, and rolls the sinks back to the last commit.
///
/// A first run commits an epoch of its own before it reads any input, so that sinks know their initial state. So does
/// each run of several processes: all of them prepare its first epoch before any worker starts, with changes or
/// without. If a flow was killed between its last commit and the notification of its sinks and sources, they are
/// notified here. A run of one process ends then; with several, other processes may have input.
pub(crate) fn resume(
    flow: &str,
    parts: &FlowParts<'_>,
    options: &Recovery,
    workers: usize,
    time_ns: i64,
    cluster: Option<&ClusterStart<'_>>,
) -> Result<ResumedRun, FlowError> {
    let membership = cluster.map(|cluster| cluster.membership);
    let (store, shards, joined) = open(options, parts, workers, cluster)?;
    let mut start = Start::new(store);
    start.commit.shards = shards;
    start.adopt(flow, parts, options)?;
    start.check_clock(options, time_ns);
    let all_workers = workers * membership.map_or(1, |membership| membership.processes);
    let process = membership.map(|membership| membership.process);
    let local = LocalPartitions::find(
        parts.nodes,
        parts.sources,
        &start.commit,
        (process, all_workers),
    )?;
    if !options.fresh {
        local.check(&start.commit, membership.is_none(), &options.dir)?;
    }
    let known = known_sources(&start.commit, options);
    let dealt = start.divide(parts, options, (membership, workers), joined.as_ref())?;
    let recordings = begin(
        parts,
        &start.commit,
        options,
        membership,
        (all_workers, time_ns),
    )?;
    let first = first_positions(
        (parts.nodes, parts.sources),
        (&start.commit, &local),
        (&known, all_workers),
        &|source, number| {
            let of_all = dealt.get(source).and_then(|dealt| dealt.get(number));
            let reads = |own: Membership| of_all.is_some_and(|it| it / workers == own.process);
            membership.is_none_or(reads)
        },
    )?;
    start.has_changes |= !first.is_empty();
    start.commit.sources.extend(first);
    // A sink that has resumed has one state, whatever each worker had prepared.
    let sinks = parts.sinks.resume(parts.nodes, &start.commit)?;
    // The state with which a sink begins must be committed before the sink is written to: of one that is new in the flow,
    // or that has kept what others wrote.
    let is_new = |new: &SinkMark| {
        let mut known = start.commit.sinks.iter();
        known.all(|mark| mark.sink != new.sink || mark.token != new.token)
    };
    start.has_changes |= sinks.iter().any(is_new);
    start.commit.sinks = sinks;
    let moved = !start.is_first && workers != start.commit.workers;
    let open = recordings.iter();
    let open: Vec<_> = open.filter_map(|(_, it)| it.journal()).collect();
    let replica = (options.replica.as_ref(), options.commit_on_replica);
    start.replicated = Replicated::begin(replica, membership, &start.store, &open)?;
    start.commit_first(cluster, joined.as_ref(), workers, time_ns)?;
    let mut resumed = start.finish(parts, options, recordings, joined, local)?;
    (resumed.resume.moved, resumed.resume.dealt) = (moved, dealt);
    Ok(resumed)
}

impl Start {
    /// The state with which the workers begin: what the run before could not do after its last commit is done.
    fn finish(
        self,
        parts: &FlowParts<'_>,
        options: &Recovery,
        recordings: Recordings,
        joined: Option<Joined>,
        local: LocalPartitions,
    ) -> Result<ResumedRun, FlowError> {
        let Start {
            mut store,
            mut commit,
            replicated,
            ..
        } = self;
        let ends_here = commit.notify_pending && joined.is_none();
        if commit.notify_pending {
            notify_sources(&recordings, parts.nodes, &commit)?;
            commit.notify_pending = false;
            store.commit(Vec::new(), &commit)?;
        }
        if ends_here {
            write_stopped(&options.dir, commit.epoch)?;
        }
        let codecs = parts.codecs.clone();
        let mut resume = Resume::of_commit(&commit, store.saved().clone(), codecs);
        let base = joined
            .as_ref()
            .map_or(commit.epoch, |joined| joined.epoch + 1);
        (resume.epoch, resume.ends_here) = (base, ends_here);
        resume.lockstep = options.epoch.is_zero();
        Ok(ResumedRun {
            store,
            resume,
            commit,
            recordings,
            base,
            joined,
            replicated,
            local,
        })
    }
}

/// Opens the state directory and meets the other processes, if there are some: only then it is known whether what is
/// prepared was committed. Nothing in a directory of another division is changed.
fn open(
    options: &Recovery,
    parts: &FlowParts<'_>,
    workers: usize,
    cluster: Option<&ClusterStart<'_>>,
) -> Result<(Store, Shards, Option<Joined>), FlowError> {
    let membership = cluster.map(|cluster| cluster.membership);
    let opened = Opened::open(&options.dir, options.sync)?;
    for commit in [opened.commit(), opened.prepared()].into_iter().flatten() {
        check_division(&options.dir, commit, membership, workers)?;
    }
    let kept = opened.commit().or(opened.prepared());
    let shards = choose(options, kept.map(|commit| commit.shards), parts.shards)?;
    shards.check_workers(workers * membership.map_or(1, |membership| membership.processes))?;
    let Some(cluster) = cluster else {
        let store = opened.truncate()?;
        clear_stopped(&options.dir)?;
        return Ok((store, shards, None));
    };
    let mut offer = opened.offer();
    if !options.drop.is_empty() {
        let names = known_names(opened.saved_names(), parts);
        offer.names = names.into_iter().collect();
        offer.drops.extend(options.drop.iter().cloned());
    }
    let joined = (cluster.join)(offer, shards);
    let joined = joined.map_err(|error| end_alone(options, cluster, &opened, error))?;
    let store = match &joined {
        Some(joined) if joined.keeps_prepared => opened.keep()?,
        _ => opened.truncate()?,
    };
    clear_stopped(&options.dir)?;
    Ok((store, shards, joined))
}

/// Returns the error of a start without the others. A process that died after its flow had ended, and is started again
/// alone, has nothing to do: it ends without an error.
fn end_alone(
    options: &Recovery,
    cluster: &ClusterStart<'_>,
    opened: &Opened,
    error: FlowError,
) -> FlowError {
    let is_alone = error.not_met().is_some_and(|not_met| not_met.alone);
    if !is_alone || options.fresh || !options.drop.is_empty() || !opened.has_ended() {
        return error;
    }
    tracing::info!(
        "{}; the flow had ended and nothing is left to do, so this process ends; to read new input start all processes",
        chain(&error)
    );
    FlowError::Cluster {
        process: cluster.membership.process,
        cause: JoinStopped.into(),
    }
}

/// The number of shards: that of the state, or for a state that begins the one that was asked for.
fn choose(
    options: &Recovery,
    kept: Option<Shards>,
    asked: Option<Shards>,
) -> Result<Shards, FlowError> {
    match (kept, asked) {
        (Some(kept), Some(asked)) if kept != asked && !options.fresh => Err(FlowError::State {
            path: options.dir.clone(),
            cause: format!(
                "its keys are divided into {} shards since its first start, and {} asks for others; leave that out, or start \
                 from scratch with {FRESH}",
                kept.count(),
                shards(asked.count())
            )
            .into(),
        }),
        (Some(kept), None) => Ok(kept),
        (_, asked) => Ok(asked.unwrap_or_default()),
    }
}

/// Clocks of machines differ by less than this.
const CLOCK_AHEAD_NS: i64 = 60_000_000_000;

/// A run before its first commit.
struct Start {
    store: Store,
    commit: Commit,
    is_first: bool,
    /// Whether something must be committed before any input is read.
    has_changes: bool,
    changes: Vec<Vec<u8>>,
    replicated: Option<Replicated>,
}

impl Start {
    fn new(store: Store) -> Self {
        let commit = store.saved().commit().cloned();
        let is_first = commit.is_none();
        Start {
            commit: commit.unwrap_or_default(),
            is_first,
            has_changes: is_first,
            changes: Vec::new(),
            replicated: None,
            store,
        }
    }

    /// Makes the state that of this flow: checks it, takes up what was divided anew, and removes what the options say.
    fn adopt(
        &mut self,
        flow: &str,
        parts: &FlowParts<'_>,
        options: &Recovery,
    ) -> Result<(), FlowError> {
        let commit = &mut self.commit;
        if self.is_first {
            flow.clone_into(&mut commit.flow)
        } else {
            check_owner(flow, commit, options)?
        }
        if commit.is_new_division() {
            self.has_changes = true;
            let process = commit.division.as_ref().map(|division| division.process);
            commit.take_outputs(process, |sink| parts.sinks.ownership(parts.nodes, sink));
        }
        check_dropped(flow, parts, &self.store, commit, options)?;
        for step in &options.drop {
            self.changes.push(record::drop_step(step));
            forget(commit, step);
        }
        check(flow, parts, &self.store, commit, options)?;
        if commit.division.is_some() && !options.fresh {
            let ownership = |sink: &str| parts.sinks.ownership(parts.nodes, sink);
            let checked = check_gathered(commit, ownership);
            checked.map_err(|cause| failed(&options.dir, cause))?;
        }
        if options.fresh {
            let dropped = forget_all(commit, self.store.saved().steps());
            self.changes.extend(dropped);
        }
        self.has_changes |= options.fresh || !self.changes.is_empty();
        Ok(())
    }

    /// Divides the partitions of sources among the processes; returns the workers of those of each source.
    fn divide(
        &mut self,
        parts: &FlowParts<'_>,
        options: &Recovery,
        (membership, workers): (Option<Membership>, usize),
        joined: Option<&Joined>,
    ) -> Result<HashMap<String, Vec<usize>>, FlowError> {
        let (division, dealt) = match (membership, joined) {
            (Some(membership), Some(joined)) => {
                let place = (membership, workers);
                let (division, dealt) = divide(parts, &self.commit, options, place, joined)?;
                (Some(division), dealt)
            }
            _ => (None, HashMap::new()),
        };
        self.has_changes |= match (&division, &self.commit.division) {
            (Some(now), Some(before)) => {
                (&now.partitions, &now.read_by_first) != (&before.partitions, &before.read_by_first)
            }
            (now, before) => now.is_some() != before.is_some(),
        };
        self.commit.division = division;
        Ok(dealt)
    }

    /// Sets the saved times back to the clock if the options say so, and warns of those far ahead of it if not.
    fn check_clock(&mut self, options: &Recovery, time_ns: i64) {
        let ahead = self.commit.processing_ns.saturating_sub(time_ns);
        if options.reset_clock {
            self.commit.reset_clock(time_ns);
            self.has_changes = true;
        } else if ahead > CLOCK_AHEAD_NS {
            tracing::warn!(
                "{}: the state was saved at a time {:.0?} ahead of the clock, until which processing time stands still: timers, windows and \
                 time to live by the clock wait; if that clock was wrong, start once with {RESET_CLOCK}",
                options.dir.display(),
                Duration::from_nanos(ahead as u64),
            );
        }
    }

    /// Commits the first epoch of the run, if it has changes; with several processes in agreement with the others.
    fn commit_first(
        &mut self,
        cluster: Option<&ClusterStart<'_>>,
        joined: Option<&Joined>,
        workers: usize,
        time_ns: i64,
    ) -> Result<(), FlowError> {
        let mut next = self.commit.clone();
        next.epoch = joined.map_or(next.epoch, |joined| joined.epoch) + 1;
        (next.time_ns, next.workers) = (time_ns, workers);
        let changes = std::mem::take(&mut self.changes);
        match (cluster, joined) {
            (Some(cluster), Some(joined)) => {
                self.prepare_first(cluster, joined, changes, next)?;
            }
            _ if self.has_changes => {
                self.store.commit(changes, &next)?;
                self.commit = next;
                if let Some(replicated) = &mut self.replicated {
                    replicated.wait_at_start(self.commit.epoch, 0, &mut || Ok(()))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Prepares the first epoch of a run of several processes, and waits until it is committed.
    fn prepare_first(
        &mut self,
        cluster: &ClusterStart<'_>,
        joined: &Joined,
        changes: Vec<Vec<u8>>,
        mut next: Commit,
    ) -> Result<(), FlowError> {
        let epoch = next.epoch;
        if self.has_changes {
            self.store.prepare(changes, &next)?;
            self.await_replica(cluster, joined, epoch)?;
        }
        joined.member.prepared(epoch, self.has_changes, false);
        loop {
            match joined.events.recv() {
                Ok(Event::AllPrepared { changed, .. }) => {
                    if changed.contains(&true) {
                        next.note_changes(&changed);
                        self.store.commit_prepared(&next, true)?;
                        self.commit = next;
                        self.await_replica(cluster, joined, epoch)?;
                    }
                    joined.member.committed(epoch);
                    return Ok(());
                }
                Ok(Event::Committed { .. }) => {
                    if self.has_changes {
                        self.store.commit_prepared(&next, false)?;
                        self.commit = next;
                    }
                    return Ok(());
                }
                // Nothing else happens before the first epoch is committed.
                Ok(event) => on_other(cluster, event)?,
                Err(_) => return Err(lost_coordinator()),
            }
        }
    }

    /// Waits until a follower has the first epoch, if commits wait for one.
    fn await_replica(
        &mut self,
        cluster: &ClusterStart<'_>,
        joined: &Joined,
        epoch: u64,
    ) -> Result<(), FlowError> {
        let Some(replicated) = &mut self.replicated else {
            return Ok(());
        };
        replicated.wait_at_start(epoch, cluster.membership.process, &mut || loop {
            match joined.events.try_recv() {
                Ok(event) => on_other(cluster, event)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(lost_coordinator()),
            }
        })
    }
}

/// Handles an event that concerns no commit, before the first epoch is committed.
fn on_other(cluster: &ClusterStart<'_>, event: Event) -> Result<(), FlowError> {
    match event {
        Event::Stop => (cluster.stop)(),
        Event::Died { process, cause } => return Err(FlowError::Lost { process, cause }),
        _ => {}
    }
    Ok(())
}

fn lost_coordinator() -> FlowError {
    FlowError::Lost {
        process: 0,
        cause: "the connection to it is lost".to_owned(),
    }
}

/// Divides the partitions of all sources among the processes of the run; returns also the workers of those of each
/// source. Where another process would read a partition than before, it does not have its position: that is an error.
fn divide(
    parts: &FlowParts<'_>,
    commit: &Commit,
    options: &Recovery,
    (membership, workers): (Membership, usize),
    joined: &Joined,
) -> Result<(Division, HashMap<String, Vec<usize>>), FlowError> {
    let before = commit.division.as_ref();
    let mut division = Division {
        cluster: joined.cluster,
        run: joined.run,
        process: membership.process,
        processes: membership.processes,
        workers,
        members: before.map_or_else(Vec::new, |before| before.members.clone()),
        partitions: Vec::new(),
        read_by_first: Vec::new(),
    };
    let mut all_dealt = HashMap::new();
    for (node, source) in parts.sources {
        let this = &parts.nodes[*node];
        let _called = in_step(&this.name);
        let settings = source.settings();
        if settings.in_one_process {
            division.read_by_first.push(this.name.clone());
        }
        let names = source.partitions(workers * membership.processes);
        let mut names = names.map_err(|cause| open_error(this, cause))?;
        let is_same = |name: &str, saved: &str| source.is_same_partition(name, saved);
        let before = before.filter(|before| !before.partitions.is_empty());
        let known = before.and_then(|before| before.known_partitions(&this.name));
        // What all processes know decides; what this one has read only is checked.
        let saved = known.unwrap_or_default().iter().map(String::as_str);
        let saved: Vec<&str> = saved.filter(|name| *name != GONE).collect();
        rename_saved(&mut names, &saved, is_same);
        let readers = if settings.in_one_process || settings.local {
            workers
        } else {
            workers * membership.processes
        };
        let (partitions, mut dealt) = deal(&names, known, readers, commit.shards);
        if settings.local {
            // Each process deals what its machine has to its own workers.
            let first = membership.process * workers;
            dealt.iter_mut().for_each(|worker| *worker += first);
        } else {
            let readers: Vec<usize> = dealt.iter().map(|worker| worker / workers).collect();
            let had = before.map(|before| (before, known.unwrap_or_default()));
            let moved = moved_name(
                commit, &this.name, &names, had, membership, &readers, is_same,
            );
            if let Some(name) = moved {
                return Err(moved_partition(options, membership, &this.name, name));
            }
        }
        division.partitions.push((this.name.clone(), partitions));
        all_dealt.insert(this.name.clone(), dealt);
    }
    Ok((division, all_dealt))
}

/// Finds a partition of a source that another process has read before than the one of `readers`.
fn moved_name<'a>(
    commit: &Commit,
    source: &str,
    names: &'a [String],
    had: Option<(&Division, &[String])>,
    membership: Membership,
    readers: &[usize],
    is_same: impl Fn(&str, &str) -> bool,
) -> Option<&'a String> {
    let (before, known) = had?;
    let marks = commit.sources.iter();
    let marks = marks.filter(|mark| mark.source == source);
    let marks: Vec<&str> = marks.map(|mark| &*mark.partition).collect();
    let mut own = names.to_vec();
    rename_saved(&mut own, &marks, is_same);
    let marks: HashSet<&str> = marks.into_iter().collect();
    let numbers: HashMap<&String, usize> = known.iter().zip(0..).collect();
    let mut all = names.iter().zip(&own).zip(readers);
    let moved = all.find(|((name, own), reader)| {
        let number = numbers.get(name);
        match number.map(|number| before.reader_of(source, *number)) {
            Some(had) => had != **reader,
            None => marks.contains(&***own) && **reader != membership.process,
        }
    });
    moved.map(|((name, _), _)| name)
}

fn moved_partition(
    options: &Recovery,
    membership: Membership,
    source: &str,
    partition: &str,
) -> FlowError {
    let dir = options.dir.parent().unwrap_or(&options.dir);
    FlowError::State {
        path: options.dir.clone(),
        cause: format!(
            "the partitions of source \"{source}\" are others than in the run before, and another process would read \"{partition}\"; divide the state anew: millstream scale {} --processes {}",
            dir.display(),
            membership.processes
        )
        .into(),
    }
}

/// Removes all saved state from a commit; returns the records that remove it from the journal.
fn forget_all<'a>(commit: &mut Commit, steps: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    commit.steps.clear();
    commit.sources.clear();
    commit.sinks.clear();
    commit.watermarks.clear();
    (commit.finished, commit.notify_pending) = (false, false);
    commit.processing_ns = 0;
    commit.outputs.clear();
    steps.map(record::drop_step).collect()
}

/// Removes the state of a step, source or sink from a commit.
fn forget(commit: &mut Commit, step: &str) {
    commit.steps.retain(|mark| mark.step != step);
    commit.sources.retain(|mark| mark.source != step);
    commit.sinks.retain(|mark| mark.sink != step);
    commit.watermarks.retain(|mark| mark.step != step);
}

fn positions<'a>(marks: impl IntoIterator<Item = &'a SourceMark>) -> Vec<(&'a str, Position)> {
    let marks = marks.into_iter();
    let positions = marks.map(|mark| (mark.partition.as_str(), mark.position.clone()));
    positions.collect()
}

/// Notifies the sources that an epoch is committed.
pub(crate) fn notify_sources(
    recordings: &Recordings,
    nodes: &[Node],
    commit: &Commit,
) -> Result<(), FlowError> {
    for (node, recording) in recordings {
        let this = &nodes[*node];
        let _called = in_step(&this.name);
        let marks = commit.own_sources();
        let marks = marks.filter(|mark| mark.source == this.name);
        // The position that a source had before it became durable is none of its recorded input.
        let marks = marks.filter(|mark| mark.recorded == recording.is_durable());
        recording
            .commit(&positions(marks))
            .map_err(|cause| open_error(this, cause))?;
    }
    Ok(())
}

/// Notifies the sources that a run begins, those of one process in process 0 only.
fn begin(
    parts: &FlowParts<'_>,
    commit: &Commit,
    options: &Recovery,
    membership: Option<Membership>,
    (workers, time_ns): (usize, i64),
) -> Result<Recordings, FlowError> {
    let is_first = membership.is_none_or(|membership| membership.process == 0);
    let mut recordings = Vec::new();
    for (node, source) in parts.sources {
        let this = &parts.nodes[*node];
        let _called = in_step(&this.name);
        let settings = source.settings();
        if !is_first && settings.in_one_process {
            continue;
        }
        let marks = commit.own_sources();
        let marks = marks.filter(|mark| mark.source == this.name);
        let (recorded, committed): (Vec<_>, Vec<_>) = marks.partition(|mark| mark.recorded);
        let [recorded, committed] = [recorded, committed].map(positions);
        let mut saved: Vec<&str> = recorded
            .iter()
            .chain(&committed)
            .map(|mark| mark.0)
            .collect();
        saved.sort_unstable();
        let partitions = || {
            let mut names = source.partitions(workers)?;
            let is_same = |name: &str, saved: &str| source.is_same_partition(name, saved);
            rename_saved(&mut names, &saved, is_same);
            Ok(names)
        };
        let run = Beginning {
            source: &this.name,
            state_dir: Some(&options.dir),
            sync: options.sync,
            committed: &committed,
            recorded: &recorded,
            partitions: &partitions,
            had_ended: commit.finished,
            forget: options.fresh || options.drop.contains(&this.name),
            time_ns,
        };
        let recording = source.begin(&run);
        let recording = recording.map_err(|cause| open_error(this, cause))?;
        if settings.local && recording.as_ref().is_some_and(|it| it.is_durable()) {
            let cause = "it is durable, and each machine has its own files (local=True); files can be read again: leave out durable";
            return Err(open_error(this, cause.into()));
        }
        if !recorded.is_empty() && !recording.as_ref().is_some_and(|it| it.is_durable()) {
            let cause = format!(
                "it was durable, and its position is known in its recorded input only; make it durable again, or forget the \
                 source with {}",
                drop_state(&this.name)
            );
            return Err(open_error(this, cause.into()));
        }
        recordings.extend(recording.map(|recording| (*node, recording)));
    }
    Ok(recordings)
}
