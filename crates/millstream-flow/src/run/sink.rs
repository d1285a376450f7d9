//! The end of a chain in a sink: passes batches to the sink's writer and records their latency.

use crate::batch::Batch;
use crate::checkpoint::WriterId;
use crate::describe::node::{NodeId, open_error};
use crate::error::{Cause, Failure, FlowError};
use crate::push::Push;
use crate::run::build::SegmentBuild;
use crate::run::context::WorkerContext;
use crate::run::panics::{Owned, in_step};
use crate::sink::{Sink, Token, Writer};
use crate::time::Watermark;

/// A sink at the end of a chain.
pub(crate) struct Drain<B> {
    node: NodeId,
    writer: Owned<Box<dyn Writer<B>>>,
    /// Batches since the last flush: the time at which they were complete at the source, and their items.
    unflushed: Vec<(u64, usize)>,
}

impl<B: Batch> Drain<B> {
    pub(crate) fn open(
        node: NodeId,
        sink: &dyn Sink<B>,
        segment: &SegmentBuild<'_, '_>,
    ) -> Result<Self, FlowError> {
        let cx = segment.context.borrow();
        let name = &segment.nodes[node].name;
        let drain = |writer| Drain {
            node,
            writer: Owned::new(writer, name, &cx.control),
            unflushed: Vec::new(),
        };
        if segment.nodes[node].exchanged && cx.worker > 0 {
            return Ok(drain(Box::new(Elsewhere)));
        }
        let _called = in_step(name);
        let writer = match segment.rehearsal {
            Some(rehearsal) => rehearsal
                .sink_for(name, sink)
                .and_then(|instead| instead.open(cx.worker, &cx.control)),
            None => sink.open(cx.worker, &cx.control),
        };
        let writer = writer.map_err(|cause| open_error(&segment.nodes[node], cause))?;
        Ok(drain(writer))
    }

    /// Records the batches of a flush: a batch counts when the system has accepted it.
    fn record_flushed(&mut self, cx: &mut WorkerContext) {
        for (stamp, items) in self.unflushed.drain(..) {
            cx.stamp = stamp;
            cx.record(self.node, items, 0);
        }
    }

    /// Adds a token to the part of this epoch; it replaces an earlier one of the writer.
    fn keep(&self, token: Option<Token>, cx: &mut WorkerContext) {
        if let (Some(checkpoint), Some(token)) = (&mut cx.checkpoint, token) {
            let writer = WriterId {
                node: self.node,
                dead_letters: false,
            };
            checkpoint.part.tokens.push((writer, token));
        }
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
        self.keep(token, cx);
        Ok(())
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.epoch(epoch, cx)?;
        cx.enter(self.node);
        let closed = self.writer.close();
        let token = closed.map_err(|cause| self.failure(cause, cx))?;
        self.record_flushed(cx);
        self.keep(token, cx);
        Ok(())
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
