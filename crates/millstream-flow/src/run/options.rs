//! The options of a run: workers, sleep, metrics, state, clock, and the replacements of sources and sinks.

use std::sync::Arc;
use std::time::Duration;

use crate::checkpoint::Recovery;
use crate::clock::Clock;
use crate::cluster::{Cluster, Membership};
use crate::control::Wrapper;
use crate::dataflow::edge::Packets;
use crate::error::FlowError;
use crate::key::Shards;
use crate::metrics::Report;
use crate::metrics::failures::Traceback;
use crate::rehearsal::Rehearsal;
use crate::starting::Starting;

/// The largest number of worker threads of a flow.
pub const WORKERS_MAX: usize = 256;
/// Called with the metrics at an interval.
pub type OnMetrics = Arc<dyn Fn(&Report) + Send + Sync>;

/// The options of a run.
#[derive(Clone)]
pub struct Options {
    /// Worker threads, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Never sleep: each worker occupies a core, for the least latency.
    pub spin: bool,
    /// Call back with the metrics at this interval.
    pub on_metrics: Option<(Duration, OnMetrics)>,
    /// Publish the metrics at this interval for a [`Watch`](crate::run::watch::Watch), and without a call back.
    #[doc(hidden)] // For the other crates of Millstream.
    pub publish: Option<Duration>,
    /// Wraps each worker thread.
    #[doc(hidden)] // For the other crates of Millstream.
    pub around: Option<Wrapper>,
    /// Wraps each turn of an operator: the Python package holds its interpreter during it.
    #[doc(hidden)] // For the other crates of Millstream.
    pub hold: Option<Wrapper>,
    /// Wraps each wait of a step for an external system: the Python package releases its interpreter.
    #[doc(hidden)] // For the other crates of Millstream.
    pub release: Option<Wrapper>,
    /// Drain and end on SIGINT and SIGTERM; a second one ends the process at once, with 128 and the number of the
    /// signal.
    pub signals: bool,
    /// Returns the tracebacks of errors, for a view of the run.
    #[doc(hidden)] // For the other crates of Millstream.
    pub traceback: Option<Traceback>,
    /// The state directory, to resume after a crash.
    pub recovery: Option<Recovery>,
    /// Processing time; a [`WallClock`](crate::clock::WallClock) by default.
    pub clock: Option<Arc<dyn Clock>>,
    /// The replacements of sources and sinks, so that no external system is used.
    #[doc(hidden)] // For the other crates of Millstream.
    pub rehearsal: Option<Arc<Rehearsal>>,
    /// The form of batches between operators; `None`: [set by the environment](Packets::of_environment).
    #[doc(hidden)] // For the other crates of Millstream.
    pub packets: Option<Packets>,
    /// The other processes that run this flow; `None`: this process runs all of it. Each process has
    /// [`workers`](Self::workers) threads.
    pub cluster: Option<Arc<dyn Cluster>>,
    /// The shards into which keys are divided, the same in all processes; `None`: those of the state, or 256. A state
    /// keeps the number of its first run, and refuses another one.
    #[doc(hidden)] // For the other crates of Millstream.
    pub shards: Option<Shards>,
    /// The start while it waits for the servers of sources: what ends the wait, and what it waits for.
    #[doc(hidden)] // For the other crates of Millstream.
    pub starting: Starting,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            spin: false,
            on_metrics: None,
            publish: None,
            around: None,
            hold: None,
            release: None,
            signals: false,
            traceback: None,
            recovery: None,
            clock: None,
            rehearsal: None,
            packets: None,
            cluster: None,
            shards: None,
            starting: Starting::default(),
        }
    }
}

impl Options {
    /// The default with `workers` threads.
    #[must_use]
    pub fn workers(workers: usize) -> Self {
        Options {
            workers,
            ..Options::default()
        }
    }

    /// The number of workers of all processes.
    pub(crate) fn all_workers(&self) -> usize {
        let processes = self
            .cluster
            .as_ref()
            .map(|cluster| cluster.membership().processes);
        self.workers * processes.unwrap_or(1)
    }

    /// Returns the shards of a run without a state, and checks that each worker can have one.
    pub(crate) fn check_shards(&self) -> Result<Shards, FlowError> {
        let shards = self.shards.unwrap_or_default();
        shards.check_workers(self.all_workers()).map(|()| shards)
    }

    /// Checks the options of a run of several processes.
    pub(crate) fn check_cluster(&self) -> Result<(), FlowError> {
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let Membership { process, processes } = cluster.membership();
        let wrong = |what: String| Err(FlowError::Usage(what));
        if process >= processes {
            return wrong(format!(
                "process {process} of {processes}: processes are counted from 0"
            ));
        }
        if self.rehearsal.is_some() {
            return wrong("a rehearsal, a replay and a trial run on one process".to_owned());
        }
        Ok(())
    }

    /// Returns the interval at which workers publish their metrics.
    pub(crate) fn publish_interval(&self) -> Option<Duration> {
        let called = self.on_metrics.as_ref().map(|(interval, _)| *interval);
        [called, self.publish].into_iter().flatten().min()
    }

    /// Checks the options of a run on the calling thread, which is its only worker.
    pub(crate) fn check_single(&self) -> Result<(), FlowError> {
        match self.workers {
            _ if self.cluster.is_some() => Err(FlowError::Usage(
                "a run on the calling thread cannot be one of several processes".to_owned(),
            )),
            1 => Ok(()),
            asked => Err(FlowError::Usage(format!(
                "{asked} workers requested; a run on the calling thread has one"
            ))),
        }
    }

    pub(crate) fn check_workers(&self) -> Result<(), FlowError> {
        match self.workers {
            1..=WORKERS_MAX => Ok(()),
            asked => Err(FlowError::Usage(format!(
                "{asked} workers requested; the number must be from 1 to {WORKERS_MAX}"
            ))),
        }
    }
}
