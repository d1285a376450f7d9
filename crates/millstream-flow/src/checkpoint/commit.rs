//! The background thread that ends epochs and commits them.
//!
//! It raises the epoch when it is due and no other one is in progress, collects the parts of all operators of
//! all workers, and appends them with a commit when the last part has arrived. At most two epochs are
//! uncommitted at any time: the one whose parts are being collected and the one that is running. With several processes
//! each has such a thread, and process 0 raises epochs and commits them for all: see `shared`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::begin::{Recordings, notify_sources};
use super::division::write_stopped;
use super::local::LocalPartitions;
use super::record::{Commit, SourceMark, StepMark};

use super::replica::Replicated;
use super::sinks::Sinks;
use super::store::Store;
use super::{CommitNotice, Crash, EpochPart, Recovery};
use crate::clock::{Clock, now_ns};
use crate::cluster::Raise;
use crate::control::{Control, Phase};
use crate::error::FlowError;
use crate::letters::SinkLetters;
use crate::metrics::progress::CommitTimer;
use crate::node::{Node, open_error};
use crate::panics::{caught, in_step};

mod refused;
mod shared;

pub(crate) use shared::SharedCommits;

/// The length of an epoch if the configured length is zero.
const PACE_NS: u64 = 100_000;
/// The interval at which the thread checks whether the flow has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Commits the epochs of a run.
pub(crate) struct Committer {
    pub(crate) store: Store,
    /// The last commit.
    pub(crate) commit: Commit,
    /// The epoch before the first of this run.
    pub(crate) base: u64,
    /// The name of the flow.
    pub(crate) flow: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) sinks: Sinks,
    /// The dead letters of sinks that have some.
    pub(crate) letters: SinkLetters,
    /// The recordings of sources, which are notified of commits.
    pub(crate) recordings: Recordings,
    pub(crate) local: LocalPartitions,
    pub(crate) options: Recovery,
    pub(crate) control: Arc<Control>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workers: usize,
    /// The number of operators of each worker.
    pub(crate) roots: usize,
    /// The commits with other processes, in a run of several.
    pub(crate) shared: Option<SharedCommits>,
    pub(crate) timer: CommitTimer,
    /// The state as it is served to other machines.
    pub(crate) replicated: Option<Replicated>,
}

/// An epoch that all operators of this process have completed.
pub(super) struct CompleteEpoch {
    /// Its number among all epochs of the flow.
    pub(super) epoch: u64,
    /// What is committed, if there is anything.
    pub(super) next: Option<Commit>,
    pub(super) changes: Vec<Vec<u8>>,
    /// Whether no operator has parts of a later epoch.
    pub(super) is_last: bool,
}

/// The parts of epochs that are not committed yet.
pub(super) struct PendingParts {
    parts: BTreeMap<u64, Vec<EpochPart>>,
    /// The number of operators that will send no more parts.
    ended: usize,
    workers_ended: usize,
    /// Whether all sources have ended.
    drained: bool,
    /// The epoch that is committed next, counted from the beginning of the run.
    pub(super) epoch_of_run: u64,
    pub(super) commits: u64,
}

/// Where the marks of a commit are that this process writes, by the names of source or step and of partition: there may
/// be thousands of partitions.
struct MarkPlaces {
    sources: HashMap<(String, String), usize>,
    watermarks: HashMap<(String, String), usize>,
}

impl MarkPlaces {
    fn in_commit(commit: &Commit) -> Self {
        let process = commit.division.as_ref().map(|division| division.process);
        let sources = commit.sources.iter().zip(0..);
        let sources = sources.filter(|(mark, _)| mark.is_of(process));
        let sources = sources.map(|(mark, at)| ((mark.source.clone(), mark.partition.clone()), at));
        let watermarks = commit.watermarks.iter();
        let watermarks = watermarks.map(|mark| (mark.step.clone(), mark.partition.clone()));
        MarkPlaces {
            sources: sources.collect(),
            watermarks: watermarks.zip(0..).collect(),
        }
    }

    /// The place of a mark; for a new one `end`, where it must be added then.
    fn of(
        places: &mut HashMap<(String, String), usize>,
        (name, partition): (&str, &str),
        end: usize,
    ) -> usize {
        let key = (name.to_owned(), partition.to_owned());
        *places.entry(key).or_insert(end)
    }
}

impl Committer {
    /// Runs until all workers have ended. An error, or a panic in a sink or source, fails the flow: a run
    /// cannot continue without commits.
    pub(crate) fn run(mut self, notices: &Receiver<CommitNotice>) {
        let commit = || "commit".to_owned();
        let worked = caught(commit, || self.work(notices));
        let worked = worked.and_then(|worked| worked);
        worked.unwrap_or_else(|error| self.control.life.fail(error));
        let passed_on = caught(commit, || self.pass_on_refused());
        let passed_on = passed_on.and_then(|passed_on| passed_on);
        passed_on.unwrap_or_else(|error| self.control.life.fail(error));
        let finished = caught(commit, || self.sinks.finish(&self.nodes));
        finished.unwrap_or_else(|error| self.control.life.fail(error));
        if !self.control.aborted()
            && let Err(error) = write_stopped(self.store.dir(), self.commit.epoch)
        {
            self.control.life.fail(error);
        }
    }

    fn work(&mut self, notices: &Receiver<CommitNotice>) -> Result<(), FlowError> {
        let mut pending = PendingParts {
            parts: BTreeMap::new(),
            ended: 0,
            workers_ended: 0,
            drained: false,
            epoch_of_run: 0,
            commits: 0,
        };
        let mut since = now_ns();
        let had_ended = self.commit.finished;
        let progress = &self.control.figures.progress;
        progress.begin_epochs(self.base, self.options.epoch);
        while !self.is_over(&pending) {
            let left = self.left(since);
            let may_raise = self.control.epochs.epoch() == pending.epoch_of_run
                && self.shared.as_ref().is_none_or(SharedCommits::may_raise);
            if let Some(has_output) = self.drained(&mut pending, may_raise, had_ended) {
                self.end(has_output);
            } else if may_raise && (left.is_zero() || self.control.epochs.take_commit_request()) {
                since = now_ns();
                self.raise(Raise::Next);
            }
            let wait = if left.is_zero() {
                CHECK_INTERVAL
            } else {
                left.min(CHECK_INTERVAL)
            };
            match notices.recv_timeout(wait) {
                Ok(CommitNotice::Part(part)) => pending.add(part),
                Ok(CommitNotice::WorkerEnded) => pending.workers_ended += 1,
                Ok(CommitNotice::Drained) => pending.drained = self.control.epochs.is_drained(),
                Ok(CommitNotice::Cluster(event)) => self.on_event(event, &mut pending)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if pending.drained
                && let Some(shared) = &mut self.shared
            {
                shared.say_drained(self.control.epochs.has_input() || !had_ended);
            }
            while self.may_commit() && pending.is_complete(self.roots * self.workers) {
                self.commit(&mut pending)?;
            }
        }
        Ok(())
    }

    /// Whether nothing is left to commit: all workers have ended, and with several processes everything is committed.
    fn is_over(&self, pending: &PendingParts) -> bool {
        let is_committed = |shared: &SharedCommits| shared.is_over() || self.control.aborted();
        pending.workers_ended >= self.workers && self.shared.as_ref().is_none_or(is_committed)
    }

    fn may_commit(&self) -> bool {
        !self.control.aborted() && self.shared.as_ref().is_none_or(SharedCommits::may_prepare)
    }

    /// Whether the flow has output at its end, if it is time to end it: all sources of all processes have ended.
    fn drained(
        &mut self,
        pending: &mut PendingParts,
        may_raise: bool,
        had_ended: bool,
    ) -> Option<bool> {
        match &mut self.shared {
            _ if !may_raise => None,
            Some(shared) => shared.take_drained(),
            None => std::mem::take(&mut pending.drained)
                .then(|| self.control.epochs.has_input() || !had_ended),
        }
    }

    /// Ends the run after all sources have ended. A flow that had finished before, and has no new input, has
    /// already emitted its final output, so it is suspended instead.
    fn end(&mut self, has_output: bool) {
        if has_output {
            self.raise(Raise::Ending);
        } else {
            tracing::info!(
                flow = self.flow.as_str(),
                "flow \"{}\": no new input since it finished",
                self.flow
            );
            self.raise(Raise::Suspending);
        }
    }

    fn raise(&mut self, raise: Raise) {
        match &mut self.shared {
            Some(shared) => shared.raise(raise),
            None => self.apply(raise),
        }
    }

    /// Ends the running epoch in this process.
    pub(super) fn apply(&mut self, raise: Raise) {
        self.timer.raised();
        match raise {
            Raise::Next => self.control.epochs.raise(),
            Raise::Ending => self.control.epochs.end_after_epoch(),
            Raise::Suspending => self.control.epochs.suspend(),
        }
    }

    /// The time until the running epoch ends.
    fn left(&self, since: u64) -> Duration {
        let length = match u64::try_from(self.options.epoch.as_nanos()) {
            Ok(0) => PACE_NS,
            // One that is longer than any run ends with it.
            length => length.unwrap_or(u64::MAX),
        };
        Duration::from_nanos(since.saturating_add(length).saturating_sub(now_ns()))
    }

    /// Commits the next epoch, which is complete; with several processes prepares it.
    fn commit(&mut self, pending: &mut PendingParts) -> Result<(), FlowError> {
        self.timer.complete();
        let complete = self.complete(pending);
        if self.shared.is_some() {
            return self.prepare(complete, pending);
        }
        pending.epoch_of_run += 1;
        let Some(next) = complete.next else {
            self.control.figures.progress.epoch_ended(None);
            return Ok(());
        };
        self.sync_outputs()?;
        pending.commits += 1;
        self.crash(Crash::Before(pending.commits))?;
        self.store.commit(complete.changes, &next)?;
        self.commit = next;
        self.crash(Crash::Within(pending.commits))?;
        if self.await_replica(complete.epoch)? {
            self.notify(pending)
        } else {
            Ok(())
        }
    }

    /// Waits until a follower has the epoch that was appended, if commits wait for one. Returns false if the run has
    /// failed meanwhile: nothing is notified of the epoch then.
    pub(super) fn await_replica(&mut self, epoch: u64) -> Result<bool, FlowError> {
        let Some(replicated) = &mut self.replicated else {
            return Ok(true);
        };
        let control = &self.control;
        let mut ended = || Ok(control.aborted());
        replicated.wait(epoch, &mut ended, &|hold| control.load.hold_sources(hold))
    }

    /// Collects the parts of the next epoch, which is complete.
    fn complete(&self, pending: &mut PendingParts) -> CompleteEpoch {
        let parts = pending
            .parts
            .remove(&pending.epoch_of_run)
            .unwrap_or_default();
        let is_last = pending.ended == self.roots * self.workers && pending.parts.is_empty();
        let mut next = self.commit.clone();
        let mut places = MarkPlaces::in_commit(&next);
        let mut changes = Vec::new();
        for part in parts {
            self.add_part(&part, &mut next, &mut places);
            changes.extend(part.changes);
        }
        let ends = is_last && self.control.epochs.phase() == Phase::Ending;
        // A flow that had finished stays finished until it has new input.
        next.finished = ends || (self.commit.finished && !self.control.epochs.has_input());
        next.notify_pending = ends;
        // If only the times have advanced, nothing needs to be committed.
        let same = changes.is_empty() && next.at_the_times_of(&self.commit) == self.commit;
        let epoch = self.base + 1 + pending.epoch_of_run;
        next.epoch = epoch;
        next.workers = self.workers;
        next.time_ns = self.clock.time_ns();
        CompleteEpoch {
            epoch,
            next: (!same).then_some(next),
            changes,
            is_last,
        }
    }

    /// Makes what sinks and recordings have written for an epoch survive a loss of power.
    pub(super) fn sync_outputs(&mut self) -> Result<(), FlowError> {
        if !self.options.sync {
            return Ok(());
        }
        let begun_ns = now_ns();
        self.sinks.sync(&self.nodes)?;
        for (node, recording) in &self.recordings {
            let _called = in_step(&self.nodes[*node].name);
            recording
                .sync()
                .map_err(|cause| open_error(&self.nodes[*node], cause))?;
        }
        self.timer.synced(begun_ns);
        Ok(())
    }

    /// Notifies sinks and sources of the last commit.
    pub(super) fn notify(&mut self, pending: &PendingParts) -> Result<(), FlowError> {
        self.sinks.commit(&self.nodes, &self.commit)?;
        notify_sources(&self.recordings, &self.nodes, &self.commit)?;
        self.crash(Crash::After(pending.commits))?;
        self.confirm_end()?;
        let cost = self.timer.committed(self.store.take_cost());
        let epoch = self.commit.epoch;
        self.control
            .figures
            .progress
            .epoch_ended(Some((epoch, cost)));
        tracing::debug!(
            flow = self.flow.as_str(),
            epoch,
            bytes = cost.bytes,
            waiting_ns = cost.waiting_ns,
            commit_ns = cost.commit_ns,
            syncing_ns = cost.sync_ns,
            "epoch {epoch} is committed"
        );
        Ok(())
    }

    /// Ends the run here if a test asks for it.
    pub(super) fn crash(&self, at: Crash) -> Result<(), FlowError> {
        if self.options.crash == Some(at) {
            Err(FlowError::Crashed(self.commit.epoch))
        } else {
            Ok(())
        }
    }

    /// Adds the part of an operator to the next commit, whose marks have these places.
    fn add_part(&self, part: &EpochPart, next: &mut Commit, places: &mut MarkPlaces) {
        let source = &self.nodes[part.root].name;
        let mut recordings = self.recordings.iter();
        let recorded = recordings.any(|(node, this)| *node == part.root && this.is_durable());
        for partition in &part.positions {
            let names = (source.as_str(), partition.partition.as_str());
            let place = MarkPlaces::of(&mut places.sources, names, next.sources.len());
            if place == next.sources.len() {
                next.sources.push(SourceMark {
                    source: source.clone(),
                    partition: partition.partition.clone(),
                    position: partition.position.clone(),
                    recorded,
                    local: None,
                    input: None,
                });
            }
            let mark = &mut next.sources[place];
            mark.position.clone_from(&partition.position);
            mark.recorded = recorded;
            self.local.complete(mark);
        }
        next.processing_ns = next.processing_ns.max(part.now);
        for mark in &part.watermarks {
            let names = (mark.step.as_str(), mark.partition.as_str());
            let place = MarkPlaces::of(&mut places.watermarks, names, next.watermarks.len());
            match next.watermarks.get_mut(place) {
                Some(known) => known.at = known.at.max(mark.at),
                None => next.watermarks.push(mark.clone()),
            }
        }
        for (step, layout) in &part.steps {
            next.put_step(StepMark::of(&self.nodes, *step, layout));
        }
        for (writer, token) in &part.tokens {
            let worker = part.worker;
            let mark = self.sinks.mark(*writer, &self.nodes, worker, token.clone());
            next.put_sink(mark);
        }
    }

    /// After the last commit, records that sinks and sources were notified of it: the next start has nothing
    /// left to do.
    fn confirm_end(&mut self) -> Result<(), FlowError> {
        if self.commit.notify_pending {
            self.commit.notify_pending = false;
            self.store.commit(Vec::new(), &self.commit)?;
        }
        Ok(())
    }
}

impl PendingParts {
    fn add(&mut self, part: EpochPart) {
        if part.last {
            self.ended += 1;
        }
        self.parts.entry(part.epoch).or_default().push(part);
    }

    /// Whether all operators have completed the next epoch. Once one operator has ended in it, all will end,
    /// and their final output is committed together.
    fn is_complete(&self, operators: usize) -> bool {
        let Some(parts) = self.parts.get(&self.epoch_of_run) else {
            return false;
        };
        let lasts = parts.iter().any(|part| part.last);
        self.ended == operators || (parts.len() == operators && !lasts)
    }
}
