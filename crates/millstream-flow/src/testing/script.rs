//! A source of what a script says.

use std::sync::Arc;
use std::time::Duration;

use super::VirtualClock;
use crate::batch::Data;
use crate::clock::now_ns;
use crate::error::Cause;
use crate::run::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source};

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
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok((0..self.partitions.len()).map(|p| p.to_string()).collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        let marks = Arc::clone(&self.partitions[partition]);
        let next = resume.map_or(Ok(0), Position::require_number)? as usize;
        for mark in marks.iter() {
            if let Mark::Advance(clock, _) = mark {
                clock.advanced_by(place(&marks), advanced(&marks, next, clock));
            }
        }
        Ok(Box::new(Reading {
            marks,
            next,
            until: None,
            settled: false,
            batch: self.batch,
        }))
    }
}

/// By how much the marks before `end` have advanced a clock.
fn advanced<T>(marks: &[Mark<T>], end: usize, clock: &VirtualClock) -> Duration {
    let before = marks.iter().take(end);
    let times = before.map(|mark| match mark {
        Mark::Advance(other, time) if other.is(clock) => *time,
        _ => Duration::ZERO,
    });
    times.sum()
}

/// What tells the scripts of a process apart.
fn place<T>(marks: &Arc<Vec<Mark<T>>>) -> usize {
    Arc::as_ptr(marks) as usize
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
    fn next_batch(&mut self, batch: &mut Vec<T>, events: &mut Events<'_>) -> Result<Next, Cause> {
        if let Some(until) = self.until {
            if now_ns() < until {
                return Ok(Next::Idle);
            }
            self.until = None;
            self.next += 1;
        }
        let most = self.batch.min(events.limit());
        while batch.len() < most {
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
                    if self.settled && !events.quiet() {
                        return Ok(Next::Idle);
                    }
                    if self.settled {
                        let total = advanced(&self.marks, self.next, clock) + *time;
                        clock.advanced_by(place(&self.marks), total);
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
    fn position(&self) -> Result<Position, Cause> {
        Ok((self.next as u64).into())
    }
}
