//! A view of a running flow for another thread: a page, a collector of metrics.
//!
//! It reads what the run publishes. Nothing on the path of a message knows that it is there.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::now_ns;
use crate::cluster::Membership;
use crate::control::Control;
pub use crate::control::statuses::ProcessStatus;
use crate::metrics::edge_counts::EdgeLoad;
use crate::metrics::failures::FailureNote;
use crate::metrics::lag::PartitionLag;
use crate::metrics::progress::{CommitTimes, EpochMetrics, PartitionWatermark};
use crate::metrics::{OutboxMetrics, WorkerMetrics};

/// A view of a running flow. [`Running::watch`](crate::Running::watch) returns it.
#[derive(Clone)]
pub struct Watch {
    pub(super) flow: String,
    pub(super) started: u64,
    pub(super) control: Arc<Control>,
}

/// The state of a run at one moment.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The time of the moment: nanoseconds of the [clock of the engine](crate::clock::now_ns).
    pub now_ns: u64,
    /// The time since the start.
    pub elapsed: Duration,
    /// Each worker.
    pub workers: Vec<WorkerMetrics>,
    /// The outboxes of the sinks that have one.
    pub outboxes: Vec<OutboxMetrics>,
    /// The lag of partitions whose source reports one, sorted by source and partition.
    pub lags: Vec<PartitionLag>,
    /// The watermarks of partitions that have event time, and that steps wait for.
    pub watermarks: Vec<PartitionWatermark>,
    /// The source and the partition of those that steps wait for, and that have had no item.
    pub without_items: Vec<(String, String)>,
    /// The commits of a run with a state directory.
    pub epochs: Option<EpochMetrics>,
    /// The last failures, the oldest first.
    pub failures: Vec<FailureNote>,
    /// The items on the connections between operators.
    pub edges: Vec<EdgeLoad>,
    /// The last commits of this run, the oldest first; at most 64.
    pub commits: Vec<CommitTimes>,
    /// Whether sources pause because too much is in flight, or an outbox is full.
    pub sources_paused: bool,
    /// Whether an outbox is so full that sources pause until it has delivered.
    pub outbox_full: bool,
    /// Whether every worker has opened its connectors.
    pub open: bool,
    /// The time since the flow was asked to end, or has failed; none at all while others end and this process has.
    pub ending: Option<Duration>,
    /// The failure that has ended the flow.
    pub failure: Option<String>,
    /// Whether the flow has ended, in all processes.
    pub ended: bool,
}

impl Watch {
    /// Returns the name of the flow.
    #[must_use]
    pub fn flow(&self) -> &str {
        &self.flow
    }

    /// Returns the number of this process and of all, in a run of several.
    #[must_use]
    pub fn membership(&self) -> Option<Membership> {
        self.control.load.others().map(|others| others.membership)
    }

    /// Sends how this process is doing to process 0, whose [`statuses`](Self::statuses) have it. It does not wait, and
    /// has no effect in process 0, in a run of one process, or if there are more than
    /// [`STATUS_BYTES_MAX`](crate::cluster::STATUS_BYTES_MAX) bytes.
    pub fn send_status(&self, bytes: Vec<u8>) {
        if let Some(others) = self.control.load.others() {
            others.send_status(false, bytes);
        }
    }

    /// In process 0: how each other process is doing. Empty elsewhere.
    #[must_use]
    pub fn statuses(&self) -> Vec<ProcessStatus> {
        let others = self.control.load.others();
        let first = others.filter(|others| others.membership.process == 0);
        first.map_or_else(Vec::new, |others| others.statuses().all())
    }

    /// Asks the flow to end, as [`Running::stop`](crate::Running::stop) does.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Asks for a commit now; false if this process does not begin commits: it has no state directory, or another
    /// process does.
    #[must_use]
    pub fn commit_now(&self) -> bool {
        self.control.commit_now()
    }

    /// Returns the state of the run now. Steps are as last published: see
    /// [`Options::publish`](crate::Options::publish).
    #[must_use]
    pub fn moment(&self) -> Moment {
        let now = now_ns();
        let (here, ended) = self.control.ends.ended();
        Moment {
            now_ns: now,
            elapsed: Duration::from_nanos(now.saturating_sub(self.started)),
            workers: self
                .control
                .figures
                .published(|worker| self.control.load.items_to(worker)),
            outboxes: self.control.figures.outboxes(),
            lags: self.control.figures.lags(),
            watermarks: self.control.figures.progress.watermarks(),
            without_items: self.control.figures.progress.without_items(),
            epochs: self.control.figures.progress.epochs(),
            failures: self
                .control
                .figures
                .failures()
                .map_or_else(Vec::new, |failures| failures.kept()),
            edges: self.control.figures.edge_counts.loads(),
            commits: self.control.figures.progress.commits(),
            sources_paused: self.control.load.congested(),
            outbox_full: self.control.load.waits_for_delivery(),
            open: self.control.ends.all_built() && !self.control.aborted(),
            ending: self
                .control
                .life
                .ending()
                .or(here.then_some(Duration::ZERO)),
            failure: self.control.failure_text().map(str::to_owned),
            ended,
        }
    }
}
