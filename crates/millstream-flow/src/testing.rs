//! Sources and sinks for tests: lists, with pauses, ends and aborts where the test wants them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::batch::Data;
use crate::clock::{Clock, now_ns};
use crate::control::{Control, lock};
use crate::error::Cause;
use crate::poller::Io;
use crate::sink::{Sink, Writer};
use crate::source::{Events, Next, Partition, Position, Source};
use crate::time::nanos;

/// One mark of a scripted source.
#[derive(Clone, Debug)]
pub enum Mark<T> {
    /// An item.
    Item(T),
    /// Silence for a while.
    Pause(Duration),
    /// The clock goes on by so much, once everything before this is done.
    Advance(VirtualClock, Duration),
    /// The end of the input; what follows is never read.
    End,
    /// The flow fails here, as if the process had died.
    Abort,
}

/// A source of scripted partitions.
#[derive(Clone)]
pub struct Script<T> {
    partitions: Vec<Arc<Vec<Mark<T>>>>,
    batch: usize,
}

/// A source of one list of items.
pub fn items<T>(items: impl IntoIterator<Item = T>) -> Script<T> {
    script([items.into_iter().map(Mark::Item).collect()])
}

/// A source of several partitions, each with its own marks.
pub fn script<T>(partitions: impl IntoIterator<Item = Vec<Mark<T>>>) -> Script<T> {
    Script {
        partitions: partitions.into_iter().map(Arc::new).collect(),
        batch: 10,
    }
}

impl<T> Script<T> {
    /// At most so many items in a batch; 10 unless told otherwise.
    #[must_use]
    pub fn batch_size(mut self, items: usize) -> Self {
        self.batch = items.max(1);
        self
    }
}

impl<T: Data + Sync> Source<Vec<T>> for Script<T> {
    fn describe(&self) -> String {
        "test script".to_owned()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Ok((0..self.partitions.len()).map(|p| p.to_string()).collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        Ok(Box::new(Reading {
            marks: Arc::clone(&self.partitions[partition]),
            next: resume.unwrap_or(0) as usize,
            until: None,
            settled: false,
            batch: self.batch,
        }))
    }
}

struct Reading<T> {
    marks: Arc<Vec<Mark<T>>>,
    next: usize,
    until: Option<u64>,
    /// True when the worker has rested since the batch before an `Advance`.
    settled: bool,
    batch: usize,
}

impl<T: Data> Partition<Vec<T>> for Reading<T> {
    fn next_batch(&mut self, batch: &mut Vec<T>, _: &mut Events<'_>) -> Result<Next, Cause> {
        if let Some(until) = self.until {
            if now_ns() < until {
                return Ok(Next::Idle);
            }
            self.until = None;
            self.next += 1;
        }
        while batch.len() < self.batch {
            match self.marks.get(self.next) {
                Some(Mark::Item(item)) => batch.push(item.clone()),
                _ if !batch.is_empty() => break,
                Some(Mark::Pause(time)) => {
                    self.until = Some(now_ns() + time.as_nanos() as u64);
                    return Ok(Next::Idle);
                }
                Some(Mark::Advance(clock, time)) => {
                    // A worker looks at its alarms only when no operator has work left, so that what
                    // was read before has arrived, and what waits for the clock comes before the rest.
                    if self.settled {
                        clock.advance(*time);
                        self.until = Some(now_ns());
                    }
                    self.settled = !self.settled;
                    return Ok(Next::Idle);
                }
                Some(Mark::Abort) => return Ok(Next::Abort),
                Some(Mark::End) | None => return Ok(Next::End),
            }
            self.next += 1;
        }
        Ok(Next::Batch)
    }
    fn next_awake(&self) -> Option<u64> {
        Some(self.until.unwrap_or(0))
    }
    fn position(&self) -> Position {
        self.next as u64
    }
}

/// A clock that a test moves by hand: handed to a run, it says which processing time it is.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicI64>);

impl VirtualClock {
    /// A clock that shows `at`, nanoseconds since 1970.
    #[must_use]
    pub fn starting_at(at: i64) -> Self {
        VirtualClock(Arc::new(AtomicI64::new(at)))
    }
    /// Moves the clock on.
    pub fn advance(&self, time: Duration) {
        self.0.fetch_add(nanos(time), Ordering::SeqCst);
    }
    /// Sets the clock, forward or back.
    pub fn set(&self, at: i64) {
        self.0.store(at, Ordering::SeqCst);
    }
}

impl Clock for VirtualClock {
    fn time_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
    // Nobody says when it is moved: a worker that waits for it looks every millisecond.
    fn wait_ns(&self, at: i64) -> u64 {
        if self.time_ns() >= at { 0 } else { 1_000_000 }
    }
}

/// What a flow wrote, for a test to look at.
#[derive(Clone)]
pub struct Collected<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Collected(Arc::default())
    }
}

impl<T: Data> Collected<T> {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// A sink that puts its items here.
    #[must_use]
    pub fn sink(&self) -> CollectSink<T> {
        CollectSink(Arc::clone(&self.0))
    }
    /// Takes what is there.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// The sink of a [`Collected`].
#[derive(Clone)]
pub struct CollectSink<T>(Arc<Mutex<Vec<T>>>);

impl<T: Data> Sink<Vec<T>> for CollectSink<T> {
    fn describe(&self) -> String {
        "collected in memory".to_owned()
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(self.clone()))
    }
}

impl<T: Data> Writer<Vec<T>> for CollectSink<T> {
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        lock(&self.0).append(batch);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}
