//! Queues as a source.

use std::sync::{Arc, Mutex, Weak};

use crate::Item;
use millstream_flow::durable::escape;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{
    Beginning, Events, Next, Partition, Position, Recording, Resumable, Source,
};
use millstream_journal::clock::monotonic_ns;

use super::ledger::Ledger;
use super::lending::{Desk, Lending};
use super::{Place, lock};

/// A batch is ended when it has so many items or bytes.
const BATCH_ITEMS: usize = 1024;
const BATCH_BYTES: usize = 64 << 10;
/// So much may be taken and not confirmed: then the source waits for a commit.
const LENT_ITEMS_MAX: usize = 1 << 20;
const LENT_BYTES_MAX: usize = 64 << 20;
/// Without commits it waits sooner until nothing of them is on its way.
const LOOSE_ITEMS_MAX: usize = 16 << 10;
/// How often a source that has nothing looks for more.
const LOOK_NS: u64 = 1_000_000;
/// How often it looks whether what it has handed on is done.
const QUIET_NS: u64 = 20_000;

/// A source of the items of queues, each queue a partition. See [`read`].
#[derive(Debug)]
pub struct ReadQueues {
    place: Place,
    names: Vec<String>,
    until_empty: bool,
    run: Mutex<Run>,
}

/// The current run.
#[derive(Clone, Debug, Default)]
struct Run {
    lending: Weak<Lending>,
    /// Whether there are commits.
    kept: bool,
}

/// Takes the items of a queue, each a frame, and waits for more; never ends by itself.
pub fn read(place: impl Into<Place>, queue: &str) -> ReadQueues {
    read_all(place, [queue])
}

/// The same, of several queues, each a partition.
pub fn read_all<N: Into<String>>(
    place: impl Into<Place>,
    queues: impl IntoIterator<Item = N>,
) -> ReadQueues {
    ReadQueues {
        place: place.into(),
        names: queues.into_iter().map(Into::into).collect(),
        until_empty: false,
        run: Mutex::default(),
    }
}

impl Clone for ReadQueues {
    fn clone(&self) -> Self {
        ReadQueues {
            place: self.place.clone(),
            names: self.names.clone(),
            until_empty: self.until_empty,
            run: Mutex::default(),
        }
    }
}

impl ReadQueues {
    /// Ends when a queue has no item.
    #[must_use]
    pub fn until_empty(mut self) -> Self {
        self.until_empty = true;
        self
    }

    fn lending(&self) -> Result<Arc<Lending>, Cause> {
        let desks = self.names.iter().map(|name| {
            let queue = self.place.queue(name)?;
            Ok(Desk::new(name, queue))
        });
        let desks = desks.collect::<Result<_, Cause>>()?;
        Ok(Arc::new(Lending { desks }))
    }
}

impl Source<Frames> for ReadQueues {
    fn describe(&self) -> String {
        let names = self.names.join(", ");
        format!("queue {names} in {}", self.place)
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self.names.clone())
    }

    fn open(
        &self,
        partition: usize,
        _: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let mut run = lock(&self.run);
        let lending = match run.lending.upgrade() {
            Some(lending) => lending,
            None => {
                let lending = self.lending()?;
                run.lending = Arc::downgrade(&lending);
                lending
            }
        };
        Ok(Box::new(QueuePartition {
            position: lending.desks[partition].next(),
            lending,
            partition,
            until_empty: self.until_empty,
            kept: run.kept,
            items: Vec::new(),
            rested: true,
            awake: 0,
        }))
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
        let lending = self.lending()?;
        let ledgers = state_dir.join("queues").join(escape(run.source));
        for desk in &lending.desks {
            let committed = run.committed.iter().find(|(name, _)| *name == desk.name);
            let committed = committed.map(|(_, position)| *position);
            let (ledger, next) = Ledger::resume(&ledgers.join(&desk.name), &desk.queue, committed)?;
            desk.keep(ledger, next);
        }
        *lock(&self.run) = Run {
            lending: Arc::downgrade(&lending),
            kept: true,
        };
        Ok(Some(lending))
    }
}

struct QueuePartition {
    lending: Arc<Lending>,
    partition: usize,
    until_empty: bool,
    /// Whether there are commits.
    kept: bool,
    items: Vec<Item>,
    position: Position,
    /// Whether what was handed on has been flushed.
    rested: bool,
    awake: u64,
}

impl QueuePartition {
    fn idle(&mut self, ns: u64) -> Next {
        self.rested = true;
        self.awake = monotonic_ns() + ns;
        Next::Idle
    }

    /// Without commits: confirm what is done, and hold back when much is not. True to hold back.
    fn keep_up(&mut self, events: &Events<'_>) -> Result<bool, Cause> {
        let desk = &self.lending.desks[self.partition];
        let (items, bytes) = desk.lent();
        if items == 0 {
            return Ok(false);
        }
        if self.rested && events.quiet() {
            desk.confirm_all()?;
            return Ok(false);
        }
        Ok(items >= LOOSE_ITEMS_MAX || bytes >= LENT_BYTES_MAX)
    }
}

impl Partition<Frames> for QueuePartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        if !self.kept && self.keep_up(events)? {
            return Ok(self.idle(QUIET_NS));
        }
        let desk = &self.lending.desks[self.partition];
        let (items, bytes) = desk.lent();
        if items >= LENT_ITEMS_MAX || bytes >= LENT_BYTES_MAX {
            return Ok(self.idle(LOOK_NS));
        }
        self.items.clear();
        let most = BATCH_ITEMS.min(events.limit());
        let lent = desk.queue.lend(most, BATCH_BYTES, &mut self.items);
        if !self.items.is_empty() {
            self.position = desk.note(&self.items)?;
        }
        lent?;
        if self.items.is_empty() {
            if self.until_empty && (self.kept || items == 0) {
                return Ok(Next::End);
            }
            return Ok(self.idle(if items == 0 { LOOK_NS } else { QUIET_NS }));
        }
        batch.data.clear();
        for item in &self.items {
            let start = batch.data.len() as u32;
            batch.data.extend_from_slice(&item.body);
            batch.spans.push((start, batch.data.len() as u32));
        }
        self.rested = false;
        Ok(Next::Batch)
    }

    fn next_awake(&self) -> Option<u64> {
        Some(self.awake)
    }

    fn position(&self) -> Position {
        self.position
    }
}
