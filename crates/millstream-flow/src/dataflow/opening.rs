//! Opens the partitions of a source on one worker: at the start, and those that the source finds during the run.
//!
//! Invariant: a partition is opened by one worker, once in a run, and between two epochs: by the worker whose number is
//! that of the partition modulo the number of workers, or of those of process 0 if only one process can read the
//! source. A run of several processes that resumes has [dealt](crate::checkpoint::Resume::dealt) them: a partition
//! stays where its position is. Processes may find partitions in different orders, so that one which is found during a
//! run of several processes is opened by the worker that its name stands for.

use std::sync::Arc;

use crate::batch::Batch;
use crate::dataflow::build::{Feed, Feeding, WorkerBuild};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::dead_letters::DeadLetterSinks;
use crate::dataflow::making::Making;
use crate::error::{Cause, FlowError, context};
use crate::key::Key;
use crate::metrics::figures::Figures;
use crate::metrics::lag::{LagGauge, WatchedLag};
use crate::node::{Node, NodeId, open_error};
use crate::panics::{Owned, in_step};
use crate::policy::Policy;
use crate::poller::Io;
use crate::source::{Partition, PositionError, Source, is_same_partition};

/// An open partition.
pub(crate) struct Open<B> {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) input: Owned<Box<dyn Partition<B>>>,
    /// Where the engine reports the lag that the partition answers when it is asked.
    lag: Option<LagGauge>,
}

impl<B> Open<B> {
    /// Asks the partition for its lag, and reports it in the name of `source`.
    pub(crate) fn note_lag(&mut self, source: &str, figures: &Figures) {
        let Some(lag) = self.input.lag() else {
            return;
        };
        let gauge = self.lag.get_or_insert_with(|| {
            let gauge = LagGauge::default();
            figures.watch_lag(WatchedLag {
                source: source.to_owned(),
                partition: self.name.clone(),
                gauge: gauge.clone(),
            });
            gauge
        });
        gauge.set(lag);
    }

    /// Whether the lag that it answers was reported.
    pub(crate) fn has_lag(&self) -> bool {
        self.lag.is_some()
    }
}

/// Opens the partitions of a source on one worker.
pub(crate) struct Opener<B> {
    source: Arc<dyn Source<B>>,
    /// The name of the source in the flow.
    name: String,
    io: Io,
    /// The first worker that may have partitions.
    first: usize,
    /// The number of workers that may have partitions, from that one on.
    readers: usize,
    /// The number of partitions that were opened, by all workers.
    known: usize,
    /// Whether partitions may be found during the run.
    pub(crate) grows: bool,
    /// The numbers and names of the partitions that were opened during the run.
    pub(crate) found: Vec<(usize, String)>,
    /// The time at which the source is asked for partitions again, in a run without epochs.
    pub(crate) asks_at: u64,
    /// The publication of the worker for which the lags of partitions were noted.
    pub(crate) published: u32,
}

/// What is open of a source on a worker, and the policy for its invalid input.
pub(crate) struct Opened<B> {
    pub(crate) partitions: Vec<Open<B>>,
    pub(crate) opener: Opener<B>,
    pub(crate) policy: Policy,
    pub(crate) dead_letters: DeadLetterSinks,
}

/// Opens a source, or its replacement in a rehearsal; returns also which workers have partitions.
pub(crate) fn open<B: Batch>(
    build: &WorkerBuild<'_, '_>,
    node: NodeId,
    source: &Arc<dyn Source<B>>,
    io: &Io,
) -> (Result<Opened<B>, FlowError>, Feeding) {
    let this = &build.nodes[node];
    let _called = in_step(&this.name);
    let instead = match build.rehearsal {
        Some(rehearsal) => rehearsal.source_for(this, source),
        None => Ok(None),
    };
    let source = match instead {
        Ok(instead) => instead.unwrap_or_else(|| Arc::clone(source)),
        Err(error) => return (Err(error), vec![false; build.workers].into()),
    };
    let names = source.partitions(build.workers);
    let settings = source.settings();
    let of_one = build.workers / build.processes().max(1);
    let readers = if settings.in_one_process || settings.local {
        of_one
    } else {
        build.workers
    };
    let first = if settings.local { build.first() } else { 0 };
    let mut opener = Opener {
        grows: source.growing().is_some(),
        source,
        name: this.name.clone(),
        io: io.clone(),
        first,
        readers,
        known: 0,
        found: Vec::new(),
        asks_at: 0,
        published: 0,
    };
    // What other machines have is not known here: a worker without partitions ends at once.
    let mut feeding = vec![settings.local; build.workers];
    let opened = names.and_then(|names| {
        let owners = opener.owners(names.len(), &build.context.borrow());
        owners.iter().for_each(|owner| feeding[*owner] = true);
        opener.open_all(names, &owners, this, &build.context.borrow())
    });
    let opened = opened.map_err(|cause| open_error(this, cause));
    let making = Making::of(node, build.nodes, &build.context.borrow(), build.rehearsal);
    let opened = opened.and_then(|partitions| {
        let policy = making.policy(&opener.source.settings().on_error)?;
        Ok(Opened {
            partitions,
            opener,
            policy,
            dead_letters: making.into_dead_letters(),
        })
    });
    (opened, feeding.into())
}

/// The input of a chain from its source on this worker.
pub(crate) fn feed<B>(workers: Feeding, opened: Option<&Opened<B>>) -> Feed {
    let opened = opened.into_iter().flat_map(|opened| &opened.partitions);
    let partitions = opened.map(|open| (open.index, open.name.clone()));
    Feed {
        workers,
        partitions: partitions.collect(),
    }
}

impl<B: Batch> Opener<B> {
    /// The largest batch of the source that steps receive.
    pub(crate) fn batch_size_max(&self) -> usize {
        let limit = self.source.settings().batch_size_max;
        limit.unwrap_or(usize::MAX).max(1)
    }

    /// Returns the workers of the partitions that the source begins with.
    fn owners(&self, partitions: usize, cx: &WorkerContext) -> Vec<usize> {
        let resume = cx.checkpoint.as_ref().map(|checkpoint| &checkpoint.resume);
        let dealt = resume.and_then(|resume| resume.dealt.get(&self.name));
        // A source that finds more partitions meanwhile deals them in turn.
        let owner = |index| dealt.and_then(|dealt| dealt.get(index)).copied();
        let owner = |index| owner(index).unwrap_or(self.first + index % self.readers);
        (0..partitions).map(owner).collect()
    }

    /// Opens the partitions that the source begins with, at their saved positions if the run resumes.
    fn open_all(
        &mut self,
        mut names: Vec<String>,
        owners: &[usize],
        this: &Node,
        cx: &WorkerContext,
    ) -> Result<Vec<Open<B>>, Cause> {
        if let Some(checkpoint) = &cx.checkpoint {
            let is_same =
                |name: &str, saved: &str| is_same_partition(self.source.resumable(), name, saved);
            checkpoint.resume.rename(&this.name, &mut names, is_same);
        }
        let opened = self.open_own(names, cx, |_, index| owners[index])?;
        if cx.checkpoint.is_some() && !opened.is_empty() {
            cx.epochs.source_begins();
        }
        Ok(opened)
    }

    /// Opens the partitions that the source has found since it was asked last.
    pub(crate) fn open_found(&mut self, cx: &WorkerContext) -> Result<Vec<Open<B>>, Cause> {
        let names = match self.source.growing() {
            Some(growing) => growing.found(self.known)?,
            None => Vec::new(),
        };
        let readers = self.readers;
        let by_name = cx.load.others().is_some();
        self.open_own(names, cx, |name, index| {
            if by_name {
                cx.shards.worker(name.stable_hash(), readers)
            } else {
                index % readers
            }
        })
    }

    /// Opens those of the next partitions that are this worker's.
    fn open_own(
        &mut self,
        names: Vec<String>,
        cx: &WorkerContext,
        owner: impl Fn(&String, usize) -> usize,
    ) -> Result<Vec<Open<B>>, Cause> {
        let resume = cx.checkpoint.as_ref().map(|checkpoint| &checkpoint.resume);
        let mut opened = Vec::new();
        for name in names {
            let index = self.known;
            self.known += 1;
            if owner(&name, index) != cx.worker {
                continue;
            }
            let position = resume.and_then(|resume| resume.position(&self.name, &name));
            let input = self.source.open(index, position, &self.io);
            let input = input.map_err(|cause| of_partition(&name, cause))?;
            let input = Owned::new(input, &self.name, &cx.life);
            if let Some(gauge) = self.io.take_lag_gauge() {
                cx.figures.watch_lag(WatchedLag {
                    source: self.name.clone(),
                    partition: name.clone(),
                    gauge,
                });
            }
            opened.push(Open {
                index,
                name,
                input,
                lag: None,
            });
        }
        Ok(opened)
    }
}

/// An error of opening a partition; where its position cannot be read, with the name of the partition.
fn of_partition(name: &str, cause: Cause) -> Cause {
    match cause.downcast_ref::<PositionError>() {
        Some(_) => context(format_args!("partition \"{name}\""), cause),
        None => cause,
    }
}
