//! A source that follows a script.

use std::sync::Arc;
use std::time::Duration;

use super::VirtualClock;
use crate::batch::Data;
use crate::clock::now_ns;
use crate::error::Cause;
use crate::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source};

/// One mark of a scripted source.
#[derive(Clone, Debug)]
pub enum Mark<T> {
    /// An item.
    Item(T),
    /// A pause without input.
    Pause(Duration),
    /// Advances the clock, after everything before this mark is processed.
    Advance(VirtualClock, Duration),
    /// The end of the input; later marks are not read.
    End,
    /// Fails the flow, as if the process had died.
    Abort,
}

/// A source of scripted partitions.
#[derive(Clone)]
pub struct Script<T> {
    partitions: Vec<Arc<Vec<Mark<T>>>>,
    batch: usize,
}

/// Creates a source of one list of items.
pub fn items<T>(items: impl IntoIterator<Item = T>) -> Script<T> {
    script([items.into_iter().map(Mark::Item).collect()])
}

/// Creates a source of several partitions, each with its own marks.
pub fn script<T>(partitions: impl IntoIterator<Item = Vec<Mark<T>>>) -> Script<T> {
    Script {
        partitions: partitions.into_iter().map(Arc::new).collect(),
        batch: 10,
    }
}

impl<T> Script<T> {
    /// Sets the largest number of items in a batch. The default is 10.
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
            was_idle: false,
            batch: self.batch,
        }))
    }
}

/// Returns by how much the marks before `end` have advanced a clock.
fn advanced<T>(marks: &[Mark<T>], end: usize, clock: &VirtualClock) -> Duration {
    let before = marks.iter().take(end);
    let times = before.map(|mark| match mark {
        Mark::Advance(other, time) if other.is(clock) => *time,
        _ => Duration::ZERO,
    });
    times.sum()
}

/// Returns a number that identifies a script within the process.
fn place<T>(marks: &Arc<Vec<Mark<T>>>) -> usize {
    Arc::as_ptr(marks) as usize
}

struct Reading<T> {
    marks: Arc<Vec<Mark<T>>>,
    next: usize,
    until: Option<u64>,
    /// True if the worker has been idle since the batch before an `Advance`.
    was_idle: bool,
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
                Some(Mark::Advance(..)) if events.beyond_this_process() => {
                    return Err("a script that advances a clock runs on one process".into());
                }
                Some(Mark::Advance(clock, time)) => {
                    // A worker checks its alarms only if no operator has work left, so that earlier input has
                    // arrived, and timers fire before the rest of the script.
                    if self.was_idle && !events.quiet() {
                        return Ok(Next::Idle);
                    }
                    if self.was_idle {
                        let total = advanced(&self.marks, self.next, clock) + *time;
                        clock.advanced_by(place(&self.marks), total);
                        self.until = Some(now_ns());
                    }
                    self.was_idle = !self.was_idle;
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
