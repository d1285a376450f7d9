//! Queues as a source.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::Item;
use millstream_flow::durable::escape;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::metrics::Lag;
use millstream_flow::poller::Io;
use millstream_flow::source::{
    Beginning, Events, Next, Partition, Position, Recording, Resumable, Source, SourceSettings,
};
use millstream_journal::clock::monotonic_ns;
use millstream_journal::context;

use super::ledger::Ledger;
use super::loans::{LentQueue, LentQueues};
use super::{Location, lock};

/// The limits of a batch.
const BATCH_ITEMS: usize = 1024;
const BATCH_BYTES: usize = 64 << 10;
/// The limits of items that are taken and not confirmed: beyond them the source waits for a commit.
const LENT_ITEMS_MAX: usize = 1 << 20;
const LENT_BYTES_MAX: usize = 64 << 20;
/// Without commits, the limit beyond which the source waits until the flow has processed them.
const UNCOMMITTED_ITEMS_MAX: usize = 16 << 10;
/// The interval at which a source without items polls.
const POLL_NS: u64 = 1_000_000;
/// The interval at which it checks whether the flow has processed its items.
const QUIET_NS: u64 = 20_000;

/// A source of the items of queues, each queue a partition. See [`read`].
#[derive(Debug)]
pub struct ReadQueues {
    location: Location,
    names: Vec<String>,
    until_empty: bool,
    run: Mutex<Run>,
}

/// The state of the current run.
#[derive(Clone, Debug, Default)]
struct Run {
    lent_queues: Weak<LentQueues>,
    /// Whether the run has commits.
    has_commits: bool,
}

/// Takes the items of a queue, each as a frame, and waits for more; it does not end by itself.
pub fn read(location: impl Into<Location>, queue: &str) -> ReadQueues {
    read_all(location, [queue])
}

/// Takes the items of several queues, each a partition.
pub fn read_all<N: Into<String>>(
    location: impl Into<Location>,
    queues: impl IntoIterator<Item = N>,
) -> ReadQueues {
    ReadQueues {
        location: location.into(),
        names: queues.into_iter().map(Into::into).collect(),
        until_empty: false,
        run: Mutex::default(),
    }
}

impl Clone for ReadQueues {
    fn clone(&self) -> Self {
        ReadQueues {
            location: self.location.clone(),
            names: self.names.clone(),
            until_empty: self.until_empty,
            run: Mutex::default(),
        }
    }
}

impl ReadQueues {
    /// Ends the source when a queue has no item.
    #[must_use]
    pub fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    fn lent_queues(&self) -> Result<Arc<LentQueues>, Cause> {
        let queues = self.names.iter().map(|name| {
            let queue = self.location.queue(name)?;
            Ok(LentQueue::new(name, queue))
        });
        let queues = queues.collect::<Result<_, Cause>>()?;
        Ok(Arc::new(LentQueues { queues }))
    }
}

impl Source<Frames> for ReadQueues {
    fn describe(&self) -> String {
        let names = self.names.join(", ");
        format!("queue {names} in {}", self.location)
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self.names.clone())
    }

    fn open(
        &self,
        partition: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let mut run = lock(&self.run);
        let lent_queues = match run.lent_queues.upgrade() {
            Some(lent_queues) => lent_queues,
            None => {
                let lent_queues = self.lent_queues()?;
                run.lent_queues = Arc::downgrade(&lent_queues);
                lent_queues
            }
        };
        Ok(Box::new(QueuePartition {
            position: lent_queues.queues[partition].next(),
            lent_queues,
            partition,
            until_empty: self.until_empty,
            has_commits: run.has_commits,
            items: Vec::new(),
            flushed: true,
            awake: 0,
        }))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            in_one_process: true,
            ..SourceSettings::default()
        }
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

impl Resumable for ReadQueues {
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let Some(state_dir) = run.state_dir else {
            *lock(&self.run) = Run::default();
            return Ok(None);
        };
        let lent_queues = self.lent_queues()?;
        let ledgers = state_dir.join("queues").join(escape(run.source));
        for queue in &lent_queues.queues {
            let committed = run.committed.iter().find(|(name, _)| *name == queue.name);
            let committed = committed.map(|(_, position)| position.require_number());
            let committed = committed.transpose();
            let committed = committed
                .map_err(|error| context(format_args!("partition \"{}\"", queue.name), error))?;
            let (ledger, next) =
                Ledger::resume(&ledgers.join(&queue.name), &queue.queue, committed)?;
            queue.attach_ledger(ledger, next);
        }
        *lock(&self.run) = Run {
            lent_queues: Arc::downgrade(&lent_queues),
            has_commits: true,
        };
        Ok(Some(lent_queues))
    }
}

struct QueuePartition {
    lent_queues: Arc<LentQueues>,
    partition: usize,
    until_empty: bool,
    /// Whether the run has commits.
    has_commits: bool,
    items: Vec<Item>,
    position: u64,
    /// Whether the last batches were flushed.
    flushed: bool,
    awake: u64,
}

impl QueuePartition {
    fn idle(&mut self, ns: u64) -> Next {
        self.flushed = true;
        self.awake = monotonic_ns() + ns;
        Next::Idle
    }

    /// Without commits: confirms the processed items. Returns true to apply back-pressure.
    fn confirm_done(&mut self, events: &Events<'_>) -> Result<bool, Cause> {
        let queue = &self.lent_queues.queues[self.partition];
        let (items, bytes) = queue.outstanding();
        if items == 0 {
            return Ok(false);
        }
        if self.flushed && events.quiet() {
            queue.confirm_all()?;
            return Ok(false);
        }
        Ok(items >= UNCOMMITTED_ITEMS_MAX || bytes >= LENT_BYTES_MAX)
    }
}

impl Partition<Frames> for QueuePartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        if !self.has_commits && self.confirm_done(events)? {
            return Ok(self.idle(QUIET_NS));
        }
        let queue = &self.lent_queues.queues[self.partition];
        let (items, bytes) = queue.outstanding();
        if items >= LENT_ITEMS_MAX || bytes >= LENT_BYTES_MAX {
            return Ok(self.idle(POLL_NS));
        }
        self.items.clear();
        let most = BATCH_ITEMS.min(events.limit());
        let lent = queue.queue.lend(most, BATCH_BYTES, &mut self.items);
        if !self.items.is_empty() {
            self.position = queue.record(&self.items)?;
        }
        lent?;
        if self.items.is_empty() {
            if self.until_empty && (self.has_commits || items == 0) {
                return Ok(Next::End);
            }
            return Ok(self.idle(if items == 0 { POLL_NS } else { QUIET_NS }));
        }
        batch.data.clear();
        for item in &self.items {
            let start = batch.data.len() as u32;
            batch.data.extend_from_slice(&item.body);
            batch.spans.push((start, batch.data.len() as u32));
        }
        self.flushed = false;
        Ok(Next::Batch)
    }

    fn next_awake(&self) -> Option<u64> {
        Some(self.awake)
    }

    fn lag(&self) -> Option<Lag> {
        let queue = &self.lent_queues.queues[self.partition].queue;
        let numbers = queue.stats().ok()?;
        let age_ms = numbers.get("oldest_age").copied();
        Some(Lag {
            records: numbers.get("items").copied(),
            bytes: numbers.get("bytes").copied(),
            age: age_ms.map(Duration::from_millis),
            ..Lag::default()
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.position.into())
    }
}
