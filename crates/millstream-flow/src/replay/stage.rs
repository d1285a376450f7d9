//! The stage passes batches from the conductor of a replay to its sources.
//!
//! Invariant: the stage has at most one batch at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::moment::{Moment, Scene};
use crate::batch::Kind;
use crate::error::Cause;
use crate::framing::Frames;
use crate::mutex::lock;
use crate::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source};

/// The batch for the sources of a replay.
pub(crate) struct Stage {
    scenes: Vec<Scene>,
    placed: Mutex<Placed>,
    /// True if the placed batch has not been read.
    waiting: AtomicBool,
}

#[derive(Default)]
struct Placed {
    /// The source, the partition and the batch.
    batch: Option<(usize, usize, Frames)>,
    /// Source and partition of those that have ended.
    ended: Vec<(usize, usize)>,
    over: bool,
}

impl Stage {
    pub(super) fn new(scenes: impl Iterator<Item = Scene>) -> Self {
        Stage {
            scenes: scenes.collect(),
            placed: Mutex::default(),
            waiting: AtomicBool::new(false),
        }
    }

    /// Returns the names of the sources that have input.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &str> {
        self.scenes.iter().map(|scene| scene.source.as_str())
    }

    /// Returns the input of a source, and the encoding of its items.
    pub(crate) fn source(self: &Arc<Self>, name: &str) -> Option<(Arc<dyn Source<Frames>>, Kind)> {
        let index = self.scenes.iter().position(|scene| scene.source == name)?;
        let stage = Arc::clone(self);
        let kind = self.scenes[index].kind;
        Some((Arc::new(Replayed { stage, index }), kind))
    }

    /// Places a batch of a source, or the end of its partition.
    pub(super) fn place(&self, source: usize, moment: Moment) {
        let mut placed = lock(&self.placed);
        if moment.ended {
            placed.ended.push((source, moment.partition));
        }
        if !moment.frames.spans.is_empty() {
            placed.batch = Some((source, moment.partition, moment.frames));
            self.waiting.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the placed batch has not been read yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Ends all sources.
    pub(super) fn end(&self) {
        lock(&self.placed).over = true;
    }

    fn read(&self, source: usize, partition: usize, batch: &mut Frames) -> Next {
        let mut placed = lock(&self.placed);
        let mine = |(of_source, of, _): &mut (usize, usize, Frames)| {
            (*of_source, *of) == (source, partition)
        };
        match placed.batch.take_if(mine) {
            Some((.., frames)) => {
                *batch = frames;
                self.waiting.store(false, Ordering::SeqCst);
                Next::Batch
            }
            None if placed.over || placed.ended.contains(&(source, partition)) => Next::End,
            None => Next::Idle,
        }
    }
}

/// A source that reads the batches on the stage.
struct Replayed {
    stage: Arc<Stage>,
    index: usize,
}

impl Source<Frames> for Replayed {
    fn describe(&self) -> String {
        let path = self.stage.scenes[self.index].path.display();
        format!("replay of {path}")
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self.stage.scenes[self.index].partitions.clone())
    }
    fn open(
        &self,
        partition: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Ok(Box::new(ReplayedPartition {
            stage: Arc::clone(&self.stage),
            source: self.index,
            partition,
            read: 0,
        }))
    }
}

struct ReplayedPartition {
    stage: Arc<Stage>,
    source: usize,
    partition: usize,
    read: u64,
}

impl Partition<Frames> for ReplayedPartition {
    fn next_batch(&mut self, batch: &mut Frames, _: &mut Events<'_>) -> Result<Next, Cause> {
        let next = self.stage.read(self.source, self.partition, batch);
        if next == Next::Batch {
            self.read += 1;
        }
        Ok(next)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.read.into())
    }
}
