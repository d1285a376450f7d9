//! What the workers of a run publish for reports and views of it.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::current::Current;
use super::edge_counts::EdgeCounts;
use super::failures::{Failures, Traceback};
use super::lag::{PartitionLag, WatchedLag};
use super::progress::Progress;
use super::{OutboxMetrics, StepMetrics, WorkerMetrics};
use crate::clock::now_ns;
use crate::mutex::lock;

/// Returns the metrics of an outbox.
pub(crate) type WatchOutbox = Box<dyn Fn() -> OutboxMetrics + Send + Sync>;

/// What one worker has published.
#[derive(Default)]
struct Published {
    /// The operator in which it is.
    current: Arc<Current>,
    /// The metrics of its steps, and when it published them.
    snapshot: Mutex<(u64, Arc<Vec<StepMetrics>>)>,
}

/// The figures of a run.
pub(crate) struct Figures {
    /// The workers of this process.
    workers: Vec<Published>,
    local: Range<usize>,
    /// The names of the steps.
    pub(crate) steps: Vec<String>,
    outboxes: Mutex<Vec<WatchOutbox>>,
    lags: Mutex<Vec<WatchedLag>>,
    /// The steps for which a warning of late items was logged.
    late: Mutex<Vec<usize>>,
    warns_of_late: bool,
    /// The last failures, in a run that is watched.
    failures: Option<Arc<Failures>>,
    /// The items on connections, in a run that is watched.
    pub(crate) edge_counts: EdgeCounts,
    pub(crate) progress: Progress,
}

impl Figures {
    /// The figures of a run with these workers in this process.
    pub(crate) fn new(local: Range<usize>) -> Self {
        Figures {
            workers: local.clone().map(|_| Published::default()).collect(),
            local,
            steps: Vec::new(),
            outboxes: Mutex::default(),
            lags: Mutex::default(),
            late: Mutex::default(),
            warns_of_late: true,
            failures: None,
            edge_counts: EdgeCounts::default(),
            progress: Progress::default(),
        }
    }

    /// Disables the warnings of late items in a run.
    pub(crate) fn without_late_warnings(self) -> Self {
        Figures {
            warns_of_late: false,
            ..self
        }
    }

    /// Adds what a view of the run shows beside the metrics. `edges` are the ends of the connections between operators.
    pub(crate) fn watched(
        self,
        traceback: Option<Traceback>,
        edges: impl Iterator<Item = (usize, usize)>,
    ) -> Self {
        Figures {
            failures: Some(Arc::new(Failures::new(traceback))),
            edge_counts: EdgeCounts::new(edges.collect(), self.local.clone()),
            ..self
        }
    }

    /// The workers of this process.
    pub(crate) fn local(&self) -> Range<usize> {
        self.local.clone()
    }

    /// The step that the first worker is in which is in one.
    pub(crate) fn inside(&self) -> Option<&str> {
        let mut workers = self.workers.iter().map(|worker| &worker.current);
        let current = workers.find(|current| current.turn().is_some())?;
        self.steps.get(current.get()).map(String::as_str)
    }

    /// The last failures, in a run that is watched.
    pub(crate) fn failures(&self) -> Option<&Arc<Failures>> {
        self.failures.as_ref()
    }

    /// Whether to log a warning of late items of a step: at most once in a run of all workers.
    pub(crate) fn first_late(&self, step: usize) -> bool {
        let mut said = lock(&self.late);
        if !self.warns_of_late || said.contains(&step) {
            return false;
        }
        said.push(step);
        true
    }

    /// Adds the metrics of an outbox to the run's.
    pub(crate) fn watch_outbox(&self, watch: WatchOutbox) {
        lock(&self.outboxes).push(watch);
    }

    pub(crate) fn outboxes(&self) -> Vec<OutboxMetrics> {
        let watched = lock(&self.outboxes);
        watched.iter().map(|watch| watch()).collect()
    }

    /// Adds the lag of a partition to the run's metrics.
    pub(crate) fn watch_lag(&self, watched: WatchedLag) {
        lock(&self.lags).push(watched);
    }

    /// Drops the lags of partitions of a source that have ended.
    pub(crate) fn forget_lags(&self, source: &str, partitions: &HashSet<&str>) {
        if !partitions.is_empty() {
            lock(&self.lags).retain(|watched| {
                watched.source != source || !partitions.contains(&*watched.partition)
            });
        }
    }

    /// Returns the lags of partitions, sorted by source and partition.
    pub(crate) fn lags(&self) -> Vec<PartitionLag> {
        let watched = lock(&self.lags);
        let mut lags: Vec<_> = watched.iter().filter_map(WatchedLag::metrics).collect();
        lags.sort_by(|a, b| (&a.source, &a.partition).cmp(&(&b.source, &b.partition)));
        lags
    }

    fn worker(&self, worker: usize) -> Option<&Published> {
        self.workers.get(worker.checked_sub(self.local.start)?)
    }

    pub(crate) fn publish(&self, worker: usize, metrics: &[StepMetrics]) {
        let Some(worker) = self.worker(worker) else {
            return;
        };
        let published = (now_ns(), Arc::new(metrics.to_vec()));
        let old = std::mem::replace(&mut *lock(&worker.snapshot), published);
        // A reader does not wait while this is freed.
        drop(old);
    }

    /// Returns where a worker writes the operator in which it is.
    pub(crate) fn current_of(&self, worker: usize) -> Arc<Current> {
        let worker = self.worker(worker);
        worker.map_or_else(Arc::default, |worker| Arc::clone(&worker.current))
    }

    /// Returns the metrics that each worker published last.
    pub(crate) fn snapshots(&self) -> Vec<Vec<StepMetrics>> {
        let workers = self.workers.iter();
        workers
            .map(|worker| lock(&worker.snapshot).1.to_vec())
            .collect()
    }

    /// Returns what each worker published last; `items_to` returns the items in flight to one.
    pub(crate) fn published(&self, items_to: impl Fn(usize) -> usize) -> Vec<WorkerMetrics> {
        let published = |(worker, published): (usize, &Published)| {
            let (published_ns, steps) = lock(&published.snapshot).clone();
            WorkerMetrics {
                published_ns,
                steps,
                in_flight_items: items_to(worker),
                current: published.current.get(),
                turn: published.current.turn(),
                thread: published.current.thread(),
            }
        };
        let workers = self.local.clone().zip(&self.workers);
        workers.map(published).collect()
    }
}
