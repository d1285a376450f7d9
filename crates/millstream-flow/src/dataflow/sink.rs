//! The end of a chain in a sink: passes batches to the sink's writer and records their latency.

use crate::batch::Batch;
use crate::checkpoint::WriterId;
use crate::dataflow::build::SegmentBuild;
use crate::dataflow::context::WorkerContext;
use crate::dataflow::push::Push;
use crate::error::{Cause, Failure, FlowError};
use crate::letters::{LetterWriter, Letters};
use crate::node::{NodeId, open_error};
use crate::panics::{Owned, in_step};
use crate::policy::unwritten;
use crate::sink::{Sink, Token, Writer};
use crate::time::Watermark;

/// A sink at the end of a chain.
pub(crate) struct Drain<B> {
    node: NodeId,
    writer: Owned<Box<dyn Writer<B>>>,
    /// The writer of the dead letters of refused records.
    letters: Option<Box<dyn LetterWriter>>,
    /// Batches since the last flush: the time at which they were complete at the source, and their items.
    unflushed: Vec<(u64, usize)>,
}

impl<B: Batch> Drain<B> {
    pub(crate) fn open(
        node: NodeId,
        sink: &dyn Sink<B>,
        letters: Option<&dyn Letters>,
        segment: &SegmentBuild<'_, '_>,
    ) -> Result<Self, FlowError> {
        let cx = segment.context.borrow();
        let name = &segment.nodes[node].name;
        let drain = |writer, letters| Drain {
            node,
            writer: Owned::new(writer, name, &cx.life),
            letters,
            unflushed: Vec::new(),
        };
        if segment.nodes[node].exchanged && cx.worker > 0 {
            return Ok(drain(Box::new(Elsewhere), None));
        }
        let _called = in_step(name);
        let worker = cx.worker;
        let control = &cx.control;
        let opened = match segment.rehearsal {
            Some(rehearsal) => rehearsal
                .sink_for(name, sink)
                .and_then(|instead| Ok((instead.open(worker, control)?, None))),
            None => sink.open(worker, control).and_then(|writer| {
                let letters = letters.map(|letters| letters.open(name, worker, control));
                Ok((writer, letters.transpose()?))
            }),
        };
        let (writer, letters) = opened.map_err(|cause| open_error(&segment.nodes[node], cause))?;
        Ok(drain(writer, letters))
    }

    /// Records the batches of a flush: a batch counts when the system has accepted it.
    fn record_flushed(&mut self, cx: &mut WorkerContext) {
        for (stamp, items) in self.unflushed.drain(..) {
            cx.stamp = stamp;
            cx.record(self.node, items, 0);
        }
    }

    /// Writes the dead letters of the records that were refused.
    fn write_letters(&mut self, cx: &WorkerContext) -> Result<(), Failure> {
        let Some(letters) = &mut self.letters else {
            return Ok(());
        };
        let refused = self.writer.take_refused();
        let written = refused.and_then(|refused| letters.write(refused).map_err(unwritten));
        written.map_err(|cause| self.failure(cause, cx))
    }

    /// Ends an epoch of the dead letters, or the run.
    fn end_letters(
        &mut self,
        end: impl FnOnce(&mut dyn LetterWriter) -> Result<Option<Token>, Cause>,
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        self.write_letters(cx)?;
        let Some(letters) = &mut self.letters else {
            return Ok(());
        };
        let token = end(&mut **letters);
        let token = token.map_err(|cause| self.failure(unwritten(cause), cx))?;
        keep(WriterId::dead_letters(self.node), token, cx);
        Ok(())
    }

    fn failure(&self, cause: Cause, cx: &WorkerContext) -> Failure {
        match cause.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(cause) => Failure::new(cx.metrics[self.node].name.clone(), cause),
        }
    }
}

impl<B: Batch> Push<B> for Drain<B> {
    fn push(&mut self, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        self.unflushed.push((cx.stamp, batch.len()));
        self.writer
            .write_batch(batch)
            .map_err(|cause| self.failure(cause, cx))
    }
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if !self.unflushed.is_empty() {
            cx.enter(self.node);
            self.writer
                .flush()
                .map_err(|cause| self.failure(cause, cx))?;
            self.record_flushed(cx);
            if cx.checkpoint.is_none() {
                self.write_letters(cx)?;
            }
        }
        Ok(())
    }
    fn watermark(&mut self, _: Watermark, _: &mut WorkerContext) -> Result<(), Failure> {
        Ok(())
    }
    fn tick(&mut self, _: &mut WorkerContext) -> Result<(), Failure> {
        Ok(())
    }
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        if cx.checkpoint.is_none() {
            return Ok(());
        }
        cx.enter(self.node);
        let number = cx.epoch_number(epoch);
        let prepared = self.writer.prepare(number);
        let token = prepared.map_err(|cause| self.failure(cause, cx))?;
        self.record_flushed(cx);
        keep(WriterId::sink(self.node), token, cx);
        self.end_letters(|letters| letters.prepare(number), cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.epoch(epoch, cx)?;
        cx.enter(self.node);
        let closed = self.writer.close();
        let token = closed.map_err(|cause| self.failure(cause, cx))?;
        self.record_flushed(cx);
        keep(WriterId::sink(self.node), token, cx);
        self.end_letters(|letters| letters.close(), cx)
    }
}

/// Adds a token to the part of this epoch; it replaces an earlier one of the writer.
fn keep(writer: WriterId, token: Option<Token>, cx: &mut WorkerContext) {
    if let (Some(checkpoint), Some(token)) = (&mut cx.checkpoint, token) {
        checkpoint.part.tokens.push((writer, token));
    }
}

/// The writer of a gathered sink on the workers that do not write it.
struct Elsewhere;

impl<B: Batch> Writer<B> for Elsewhere {
    fn write_batch(&mut self, batch: &mut B) -> Result<(), Cause> {
        let items = batch.len();
        Err(format!("{items} items came to a worker that does not write the sink").into())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}
