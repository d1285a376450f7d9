//! What a run publishes beside the counters of its steps: its epochs, and the event time of partitions.
//!
//! Each figure is written where it changes, once a turn or once an epoch, and read by a
//! [`Watch`](crate::run::watch::Watch).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::now_ns;
use crate::mutex::lock;
use crate::time::BEFORE_ALL;

/// The number of commits whose times are kept: those of some seconds, for readers that come once a second.
const COMMITS_KEPT: usize = 64;

/// The commits of a run with a state directory: sums since its start, and the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct EpochMetrics {
    /// The number of the last epoch that was committed.
    pub epoch: u64,
    /// The number of commits of this run.
    pub commits: u64,
    /// The bytes of state that they appended.
    pub bytes: u64,
    /// The time in which they waited for all operators to complete the epoch.
    pub waiting: Duration,
    /// The time in which they appended changes, and moved the output of sinks.
    pub saving: Duration,
    /// The time in which they waited until the data survives a loss of power.
    pub syncing: Duration,
    /// The time since the last epoch ended: committed, or found to have nothing to commit.
    pub age: Duration,
    /// The time since the last commit of this run; `None` before the first one.
    pub since_commit: Option<Duration>,
    /// The configured length of an epoch.
    pub length: Duration,
}

/// What one commit took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitCost {
    /// The bytes that were appended.
    pub(crate) bytes: u64,
    pub(crate) waiting_ns: u64,
    /// From the last part to the end, with the syncs.
    pub(crate) commit_ns: u64,
    pub(crate) sync_ns: u64,
}

/// When and how one epoch was committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct CommitTimes {
    /// The number of the epoch.
    pub epoch: u64,
    /// When the commit was complete: nanoseconds of the [clock of the engine](crate::clock::now_ns).
    pub ended_ns: u64,
    /// The bytes of state that it appended.
    pub bytes: u64,
    /// The time in which it waited for all operators.
    pub waiting: Duration,
    /// The time in which it appended changes, and moved the output of sinks.
    pub saving: Duration,
    /// The time in which it waited for the disk.
    pub syncing: Duration,
}

/// Measures the epoch that is being committed.
#[derive(Default)]
pub(crate) struct CommitTimer {
    raised_ns: u64,
    /// When all parts of this process had arrived, later by the time in which it waited for other processes.
    begun_ns: u64,
    prepared_ns: u64,
    cost: CommitCost,
}

impl CommitTimer {
    /// The sources begin the next epoch.
    pub(crate) fn raised(&mut self) {
        self.raised_ns = now_ns();
    }

    /// All parts of the epoch in this process have arrived.
    pub(crate) fn complete(&mut self) {
        self.begun_ns = now_ns();
        self.cost = CommitCost {
            waiting_ns: self.begun_ns.saturating_sub(self.raised_ns),
            ..CommitCost::default()
        };
    }

    /// A sync that began at `since_ns` has ended.
    pub(crate) fn synced(&mut self, since_ns: u64) {
        self.cost.sync_ns += now_ns().saturating_sub(since_ns);
    }

    /// The epoch waits for other processes.
    pub(crate) fn prepared(&mut self) {
        self.prepared_ns = now_ns();
    }

    /// The epoch is committed by all processes.
    pub(crate) fn decided(&mut self) {
        let waited_ns = now_ns().saturating_sub(self.prepared_ns);
        self.cost.waiting_ns += waited_ns;
        self.begun_ns += waited_ns;
    }

    /// Returns the cost of the epoch, which is committed here, with that of its appends.
    pub(crate) fn committed(&self, appended: CommitCost) -> CommitCost {
        CommitCost {
            bytes: appended.bytes,
            waiting_ns: self.cost.waiting_ns,
            commit_ns: now_ns().saturating_sub(self.begun_ns),
            sync_ns: self.cost.sync_ns + appended.sync_ns,
        }
    }
}

/// The event time of one partition of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct PartitionWatermark {
    /// The name of the source.
    pub source: String,
    /// The name of the partition.
    pub partition: String,
    /// The watermark, in nanoseconds since the epoch.
    pub watermark_ns: i64,
}

/// The watermark of a partition, published once a turn of its source.
#[derive(Debug)]
pub(crate) struct WatermarkGauge {
    source: String,
    partition: String,
    at: AtomicI64,
    /// False for a partition that is idle or has ended: nothing waits for it.
    counts: AtomicBool,
}

impl WatermarkGauge {
    pub(crate) fn set(&self, at: i64, counts: bool) {
        self.at.store(at, Ordering::Relaxed);
        self.counts.store(counts, Ordering::Relaxed);
    }

    fn get(&self) -> Option<PartitionWatermark> {
        let at = self.at.load(Ordering::Relaxed);
        let known = at != BEFORE_ALL && self.counts.load(Ordering::Relaxed);
        known.then(|| PartitionWatermark {
            source: self.source.clone(),
            partition: self.partition.clone(),
            watermark_ns: at,
        })
    }
}

/// The epochs of a run so far, and when the last one ended.
#[derive(Default)]
struct Epochs {
    metrics: Option<EpochMetrics>,
    ended_ns: u64,
    /// The last commits of this run, the oldest first.
    last: VecDeque<CommitTimes>,
}

/// The progress of a run.
#[derive(Default)]
pub(crate) struct Progress {
    watermarks: Mutex<Vec<Arc<WatermarkGauge>>>,
    epochs: Mutex<Epochs>,
}

impl Progress {
    /// Adds a partition whose source assigns event times.
    pub(crate) fn watch_watermark(&self, source: &str, partition: &str) -> Arc<WatermarkGauge> {
        let gauge = Arc::new(WatermarkGauge {
            source: source.to_owned(),
            partition: partition.to_owned(),
            at: BEFORE_ALL.into(),
            counts: true.into(),
        });
        lock(&self.watermarks).push(Arc::clone(&gauge));
        gauge
    }

    /// Whether a partition of a source has a watermark.
    pub(crate) fn has_begun(&self, source: &str) -> bool {
        let watched = lock(&self.watermarks);
        let mut of_source = watched.iter().filter(|gauge| gauge.source == source);
        of_source.any(|gauge| gauge.at.load(Ordering::Relaxed) != BEFORE_ALL)
    }

    /// Returns the sources and partitions that steps wait for, and that have had no item.
    pub(crate) fn without_items(&self) -> Vec<(String, String)> {
        let watched = lock(&self.watermarks);
        let waits = watched.iter().filter(|gauge| {
            gauge.at.load(Ordering::Relaxed) == BEFORE_ALL && gauge.counts.load(Ordering::Relaxed)
        });
        waits
            .map(|gauge| (gauge.source.clone(), gauge.partition.clone()))
            .collect()
    }

    /// Returns the watermarks that steps wait for, in no order.
    pub(crate) fn watermarks(&self) -> Vec<PartitionWatermark> {
        let watched = lock(&self.watermarks);
        watched.iter().filter_map(|gauge| gauge.get()).collect()
    }

    /// Notes that the epochs of a run begin, after epoch `epoch` of earlier ones.
    pub(crate) fn begin_epochs(&self, epoch: u64, length: Duration) {
        *lock(&self.epochs) = Epochs {
            metrics: Some(EpochMetrics {
                epoch,
                length,
                ..EpochMetrics::default()
            }),
            ended_ns: now_ns(),
            last: VecDeque::new(),
        };
    }

    /// Notes the end of an epoch, and what its commit took if it had one.
    pub(crate) fn epoch_ended(&self, committed: Option<(u64, CommitCost)>) {
        let mut epochs = lock(&self.epochs);
        let epochs = &mut *epochs;
        epochs.ended_ns = now_ns();
        if let (Some((epoch, cost)), Some(metrics)) = (committed, &mut epochs.metrics) {
            let times = CommitTimes {
                epoch,
                ended_ns: now_ns(),
                bytes: cost.bytes,
                waiting: Duration::from_nanos(cost.waiting_ns),
                saving: Duration::from_nanos(cost.commit_ns.saturating_sub(cost.sync_ns)),
                syncing: Duration::from_nanos(cost.sync_ns),
            };
            metrics.epoch = epoch;
            metrics.commits += 1;
            metrics.bytes += times.bytes;
            metrics.waiting += times.waiting;
            metrics.saving += times.saving;
            metrics.syncing += times.syncing;
            if epochs.last.len() == COMMITS_KEPT {
                epochs.last.pop_front();
            }
            epochs.last.push_back(times);
        }
    }

    /// Returns the epochs so far, in a run that has them.
    pub(crate) fn epochs(&self) -> Option<EpochMetrics> {
        let epochs = lock(&self.epochs);
        let since = |ended_ns| Duration::from_nanos(now_ns().saturating_sub(ended_ns));
        let since_commit = epochs.last.back().map(|last| since(last.ended_ns));
        epochs.metrics.map(|metrics| EpochMetrics {
            age: since(epochs.ended_ns),
            since_commit,
            ..metrics
        })
    }

    /// Returns the last commits of this run, the oldest first.
    pub(crate) fn commits(&self) -> Vec<CommitTimes> {
        lock(&self.epochs).last.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_summed_and_an_epoch_without_one_is_an_end() {
        let progress = Progress::default();
        assert_eq!(progress.epochs(), None);
        progress.begin_epochs(4, Duration::from_secs(1));
        let cost = CommitCost {
            bytes: 10,
            waiting_ns: 5,
            commit_ns: 9,
            sync_ns: 6,
        };
        progress.epoch_ended(Some((5, cost)));
        progress.epoch_ended(None);
        progress.epoch_ended(Some((7, cost)));
        let epochs = progress.epochs().unwrap();
        assert_eq!((epochs.epoch, epochs.commits, epochs.bytes), (7, 2, 20));
        let times = [epochs.waiting, epochs.saving, epochs.syncing];
        assert_eq!(times.map(|time| time.as_nanos()), [10, 6, 12]);
    }

    #[test]
    fn a_partition_that_nothing_waits_for_has_no_watermark() {
        let progress = Progress::default();
        let one = progress.watch_watermark("in", "a");
        assert_eq!(progress.watermarks(), []);
        one.set(7, true);
        assert_eq!(progress.watermarks()[0].watermark_ns, 7);
        one.set(8, false);
        assert_eq!(progress.watermarks(), []);
    }
}
