//! One partition of a durable source: first the records after the last commit, then the source itself.

use std::sync::Arc;

use super::input_position::InputPosition;
use super::record::Head;
use super::recorder::{Recorder, Start};
use crate::batch::Raw;
use crate::error::Cause;
use crate::framing::Frames;
use crate::metrics::lag::Lag;
use crate::source::{Events, Next, Partition, Position};

/// The number of records of other partitions after which a quiet partition records its position again.
const QUIET_RECORDS: u64 = 1024;

pub(super) struct DurablePartition<B> {
    recorder: Arc<Recorder>,
    index: usize,
    /// The source's own partition, unless it has ended.
    source: Option<Box<dyn Partition<B>>>,
    start: Start,
    replaying: bool,
    frames: Frames,
    record: Vec<u8>,
}

impl<B: Raw> DurablePartition<B> {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        index: usize,
        source: Option<Box<dyn Partition<B>>>,
        start: Start,
    ) -> Self {
        DurablePartition {
            recorder,
            index,
            source,
            start,
            replaying: true,
            frames: Frames::default(),
            record: Vec::new(),
        }
    }

    /// The next recorded batch, if one is left.
    fn replay(&mut self, batch: &mut B) -> Result<bool, Cause> {
        while let Some(recorded) = self.start.replay.next_batch()? {
            self.start.at = InputPosition::Record(recorded.sequence);
            if recorded.items().len() == 0 {
                continue;
            }
            if recorded.kind != B::KIND {
                return Err(format!(
                    "record {} of its input was recorded as {:?}, and the source gives {:?} now",
                    recorded.sequence,
                    recorded.kind,
                    B::KIND
                )
                .into());
            }
            recorded.copy_to(&mut self.frames);
            batch.fill(&mut self.frames)?;
            return Ok(true);
        }
        self.replaying = false;
        if self.start.ended {
            self.start.at = self.start.at.at_end();
        }
        Ok(false)
    }

    /// Whether many records of other partitions follow the last one of this partition.
    fn is_quiet_for_long(&self) -> Result<bool, Cause> {
        let next = self.recorder.next()?;
        let last = self.start.at.record();
        Ok(last.is_some_and(|last| next > last + QUIET_RECORDS))
    }

    /// Records a batch before it is processed; an empty one records only the position.
    fn record(&mut self, batch: &B, ended: bool, events: &Events<'_>) -> Result<(), Cause> {
        let frames = batch.frames(&mut self.frames)?;
        let position = self.source.as_ref().map(|source| source.position());
        let position = position.transpose()?;
        let head = Head {
            kind: B::KIND,
            partition: self.recorder.partition(self.index),
            position: position.as_ref(),
            ended,
        };
        let time_ns = events.clock.time_ns();
        let sequence = self
            .recorder
            .record(&head, frames, time_ns, &mut self.record)?;
        self.start.at = InputPosition::Record(sequence);
        Ok(())
    }
}

impl<B: Raw> Partition<B> for DurablePartition<B> {
    fn next_batch(&mut self, batch: &mut B, events: &mut Events<'_>) -> Result<Next, Cause> {
        if self.replaying && self.replay(batch)? {
            return Ok(Next::Batch);
        }
        let Some(source) = &mut self.source else {
            return Ok(Next::End);
        };
        let next = source.next_batch(batch, events)?;
        match next {
            Next::Batch => self.record(batch, false, events)?,
            Next::End => {
                self.record(&B::default(), true, events)?;
                self.start.at = self.start.at.at_end();
                self.source = None;
            }
            Next::Idle if self.is_quiet_for_long()? => self.record(&B::default(), false, events)?,
            Next::Idle | Next::Abort => {}
        }
        Ok(next)
    }
    fn next_awake(&self) -> Option<u64> {
        self.source.as_ref().and_then(|source| source.next_awake())
    }
    fn lag(&self) -> Option<Lag> {
        self.source.as_ref().and_then(|source| source.lag())
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.start.at.into())
    }
}
