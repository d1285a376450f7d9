//! The background thread that ends epochs and commits them.
//!
//! It raises the epoch when it is time and no other is under way, gathers the parts of all operators of
//! all workers, and appends them with a commit when the last one has come. At most two epochs are not
//! committed at any time: the one whose parts are being gathered and the one that runs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::begin::{Recordings, tell_sources};
use super::record::{Commit, SinkMark, SourceMark};
use super::sinks::Sinks;
use super::store::Store;
use super::{CommitNotice, Crash, EpochPart, Recovery};
use crate::clock::{Clock, now_ns};
use crate::describe::node::{Node, open_error};
use crate::error::FlowError;
use crate::run::control::{Control, Phase};

/// The pace of epochs that are to take no time.
const PACE_NS: u64 = 100_000;
/// How often the thread looks whether the flow has failed.
const LOOK: Duration = Duration::from_millis(100);

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
    /// What sources keep that are to be told of commits.
    pub(crate) recordings: Recordings,
    pub(crate) options: Recovery,
    pub(crate) control: Arc<Control>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workers: usize,
    /// How many operators each worker has.
    pub(crate) roots: usize,
}

/// What has been handed over and is not committed.
struct Gathered {
    parts: BTreeMap<u64, Vec<EpochPart>>,
    /// How many operators have no more to hand over.
    ended: usize,
    workers_ended: usize,
    /// Whether all sources have ended.
    drained: bool,
    /// The epoch that is to be committed next, counted from the beginning of the run.
    next: u64,
    commits: u64,
}

impl Committer {
    /// Works until all workers have ended. An error, or a panic in a sink or source, fails the flow: a run without commits must
    /// not go on.
    pub(crate) fn run(mut self, notices: &Receiver<CommitNotice>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work(notices)));
        let outcome =
            outcome.unwrap_or_else(|panic| Err(FlowError::panicked("commit".to_owned(), &*panic)));
        if let Err(error) = outcome {
            self.control.fail(error);
        }
        self.sinks.finish();
    }

    fn work(&mut self, notices: &Receiver<CommitNotice>) -> Result<(), FlowError> {
        let mut gathered = Gathered {
            parts: BTreeMap::new(),
            ended: 0,
            workers_ended: 0,
            drained: false,
            next: 0,
            commits: 0,
        };
        let mut since = now_ns();
        let had_ended = self.commit.finished;
        while gathered.workers_ended < self.workers {
            let left = self.left(since);
            if gathered.drained && self.control.epoch() == gathered.next {
                gathered.drained = false;
                self.end(had_ended);
            } else if left.is_zero() && self.control.epoch() == gathered.next {
                since = now_ns();
                self.control.raise_epoch();
            }
            let wait = if left.is_zero() { LOOK } else { left.min(LOOK) };
            match notices.recv_timeout(wait) {
                Ok(CommitNotice::Part(part)) => gathered.take(part),
                Ok(CommitNotice::WorkerEnded) => gathered.workers_ended += 1,
                Ok(CommitNotice::Drained) => gathered.drained = self.control.is_drained(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while !self.control.aborted() && gathered.is_whole(self.roots * self.workers) {
                self.commit(&mut gathered)?;
            }
        }
        Ok(())
    }

    /// All sources have ended. Where the flow had come to its end before, and there was nothing new for it, it has
    /// given what it gives at its end.
    fn end(&self, had_ended: bool) {
        if had_ended && !self.control.has_input() {
            tracing::info!(
                flow = self.flow.as_str(),
                "flow \"{}\": nothing new since it came to its end",
                self.flow
            );
            self.control.suspend();
        } else {
            self.control.end_after_epoch();
        }
    }

    /// How long the running epoch still takes.
    fn left(&self, since: u64) -> Duration {
        let length = match self.options.epoch.as_nanos() as u64 {
            0 => PACE_NS,
            length => length,
        };
        Duration::from_nanos((since + length).saturating_sub(now_ns()))
    }

    fn commit(&mut self, gathered: &mut Gathered) -> Result<(), FlowError> {
        let parts = gathered.parts.remove(&gathered.next).unwrap_or_default();
        let all = gathered.ended == self.roots * self.workers && gathered.parts.is_empty();
        let mut next = self.commit.clone();
        let mut changes = Vec::new();
        for part in parts {
            self.book(&part, &mut next);
            changes.extend(part.changes);
        }
        let ends = all && self.control.phase() == Phase::Ending;
        // A flow that had come to its end has not gone on before there is something new for it.
        next.finished = ends || (self.commit.finished && !self.control.has_input());
        next.unsettled = ends;
        // Time that goes on where nothing else happens has brought about nothing.
        let same = changes.is_empty() && next.at_the_times_of(&self.commit) == self.commit;
        let epoch = self.base + 1 + gathered.next;
        gathered.next += 1;
        if !same {
            next.epoch = epoch;
            next.workers = self.workers;
            next.time_ns = self.clock.time_ns();
            if self.options.sync {
                self.sinks.sync(&self.nodes)?;
            }
            for (node, recording) in self.recordings.iter().filter(|_| self.options.sync) {
                recording
                    .sync()
                    .map_err(|cause| open_error(&self.nodes[*node], cause))?;
            }
            gathered.commits += 1;
            self.crash(Crash::Before(gathered.commits))?;
            self.store.append(changes, &next)?;
            self.commit = next;
            self.crash(Crash::Within(gathered.commits))?;
            self.sinks.commit(&self.nodes, &self.commit)?;
            tell_sources(&self.recordings, &self.nodes, &self.commit)?;
            self.crash(Crash::Behind(gathered.commits))?;
            self.settle()?;
        }
        Ok(())
    }

    /// Ends the run here, if a test wants that.
    fn crash(&self, at: Crash) -> Result<(), FlowError> {
        match self.options.crash == Some(at) {
            true => Err(FlowError::Crashed(self.commit.epoch)),
            false => Ok(()),
        }
    }

    /// Takes what an operator has handed over into the next commit.
    fn book(&self, part: &EpochPart, next: &mut Commit) {
        let source = &self.nodes[part.root].name;
        let mut recordings = self.recordings.iter();
        let recorded = recordings.any(|(node, this)| *node == part.root && this.is_durable());
        for standing in &part.positions {
            let known = next
                .sources
                .iter_mut()
                .find(|mark| mark.source == *source && mark.partition == standing.partition);
            match known {
                Some(mark) => {
                    (mark.position, mark.recorded) = (standing.position, recorded);
                    mark.place.clone_from(&standing.place);
                }
                None => next.sources.push(SourceMark {
                    source: source.clone(),
                    partition: standing.partition.clone(),
                    position: standing.position,
                    place: standing.place.clone(),
                    recorded,
                }),
            }
        }
        next.processing_ns = next.processing_ns.max(part.now);
        for mark in &part.watermarks {
            let known = next
                .watermarks
                .iter_mut()
                .find(|known| known.step == mark.step && known.partition == mark.partition);
            match known {
                Some(known) => known.at = known.at.max(mark.at),
                None => next.watermarks.push(mark.clone()),
            }
        }
        for (writer, token) in &part.tokens {
            let name = writer.name(&self.nodes);
            let worker = part.worker;
            let mark = SinkMark {
                sink: name.clone(),
                worker,
                token: token.clone(),
            };
            match next
                .sinks
                .iter_mut()
                .find(|mark| mark.sink == name && mark.worker == worker)
            {
                Some(known) => *known = mark,
                None => next.sinks.push(mark),
            }
        }
    }

    /// Behind the last commit: nothing is left to do for whoever starts the flow again.
    fn settle(&mut self) -> Result<(), FlowError> {
        if self.commit.unsettled {
            self.commit.unsettled = false;
            self.store.append(Vec::new(), &self.commit)?;
        }
        Ok(())
    }
}

impl Gathered {
    fn take(&mut self, part: EpochPart) {
        if part.last {
            self.ended += 1;
        }
        self.parts.entry(part.epoch).or_default().push(part);
    }

    /// Whether all operators have the next epoch behind them. Once the first has ended in it all will end, and what
    /// they give at the end counts as a whole.
    fn is_whole(&self, operators: usize) -> bool {
        let Some(parts) = self.parts.get(&self.next) else {
            return false;
        };
        let lasts = parts.iter().any(|part| part.last);
        self.ended == operators || (parts.len() == operators && !lasts)
    }
}
