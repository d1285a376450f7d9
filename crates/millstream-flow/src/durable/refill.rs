//! Reads the items of a durable source back from its record, where they were recorded in an encoding of the source and
//! not as plain bytes.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::batch::Raw;
use crate::error::Cause;
use crate::framing::Frames;
use crate::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source, SourceSettings};
use crate::{forward_partition, forward_source};

/// Makes batches again of the frames in which they were written.
pub(super) struct Refill<B> {
    frames: Arc<dyn Source<Frames>>,
    batch: PhantomData<fn() -> B>,
}

impl<B> Refill<B> {
    pub(super) fn new(frames: Arc<dyn Source<Frames>>) -> Self {
        Refill {
            frames,
            batch: PhantomData,
        }
    }
}

impl<B: Raw> Source<B> for Refill<B> {
    forward_source!(this => this.frames; describe partitions);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        Ok(Box::new(Refilled {
            inner: self.frames.open(partition, resume, io)?,
            frames: Frames::default(),
        }))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            batch_size_max: self.frames.settings().batch_size_max,
            ..SourceSettings::default()
        }
    }
}

struct Refilled {
    inner: Box<dyn Partition<Frames>>,
    frames: Frames,
}

#[warn(clippy::missing_trait_methods)]
impl<B: Raw> Partition<B> for Refilled {
    fn next_batch(&mut self, batch: &mut B, events: &mut Events<'_>) -> Result<Next, Cause> {
        let next = self.inner.next_batch(&mut self.frames, events)?;
        if next == Next::Batch {
            batch.fill(&mut self.frames)?;
        }
        Ok(next)
    }
    forward_partition!(this => this.inner);
}
