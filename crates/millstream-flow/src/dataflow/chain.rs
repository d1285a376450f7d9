//! The inner parts of a chain: a step, a copy for each of several readers, and the two halves of a divided
//! stream.

use crate::batch::{Batch, BatchCodec};
use crate::checkpoint::TimeMark;
use crate::dataflow::context::WorkerContext;
use crate::dataflow::dead_letters::DeadLetterSinks;
use crate::dataflow::push::Push;
use crate::error::Failure;
use crate::panics::Owned;
use crate::state::Changes;
use crate::step::Step;
use crate::time::Watermark;

/// A step and the part of the chain that follows it.
pub(crate) struct Joined<O, S> {
    pub(crate) node: usize,
    pub(crate) step: S,
    pub(crate) output: O,
    pub(crate) dead_letters: DeadLetterSinks,
    pub(crate) next: Box<dyn Push<O>>,
    /// The publication of the worker for which the step has noted the size of its state.
    pub(crate) published: u32,
}

/// Copies batches by their codec, if there is one: what a step does to its items is not seen by others then.
pub(crate) type Copier<B> = Option<Box<dyn BatchCodec<B>>>;

fn copied<B: Batch>(
    codec: &dyn BatchCodec<B>,
    batch: &B,
    cx: &WorkerContext,
) -> Result<B, Failure> {
    let mut bytes = Vec::new();
    let made = codec
        .encode(batch, &mut bytes)
        .and_then(|()| codec.decode(&bytes));
    made.map_err(|cause| Failure::new(cx.step_name(), cause))
}

impl<I: Batch, O: Batch> Push<I> for Joined<O, Owned<Box<dyn Step<I, O>>>> {
    fn push(&mut self, batch: &mut I, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        let items = batch.len();
        self.step.apply(batch, &mut self.output, cx)?;
        cx.record(self.node, items, self.output.len());
        self.forward(cx)
    }
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if self.published != cx.publication {
            self.note_size(cx);
        }
        self.next.flush(cx)
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        self.step.watermark(mark.at, &mut self.output, cx)?;
        self.send(cx)?;
        self.next.watermark(mark, cx)
    }
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        self.step.tick(&mut self.output, cx)?;
        self.send(cx)?;
        self.next.tick(cx)
    }
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        if cx.checkpoint.is_some() && cx.epochs.drains_in(epoch) {
            self.step.drain(&mut self.output, cx)?;
            self.send(cx)?;
            cx.enter(self.node);
        }
        self.save(cx)?;
        self.dead_letters.prepare(self.node, epoch, cx)?;
        self.next.epoch(epoch, cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.enter(self.node);
        self.note_size(cx);
        if cx.suspended() {
            self.save(cx)?;
        } else {
            // The output at the end belongs to this run: the saved state is that before it.
            self.step.end(&mut self.output, cx)?;
            self.send(cx)?;
        }
        self.dead_letters.close(self.node, epoch, cx)?;
        self.next.end(epoch, cx)
    }
}

impl<I: Batch, O: Batch> Joined<O, Owned<Box<dyn Step<I, O>>>> {
    /// Notes the size of the state, for the next publication of the worker.
    #[cold]
    fn note_size(&mut self, cx: &mut WorkerContext) {
        self.published = cx.publication;
        if let Some(state) = self.step.stateful() {
            cx.metrics[self.node].state = state.size();
        }
    }

    fn save(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if !cx
            .checkpoint
            .as_ref()
            .is_some_and(|checkpoint| checkpoint.resume.saves())
        {
            return Ok(());
        }
        let Some(state) = self.step.stateful() else {
            return Ok(());
        };
        let name = cx.metrics[self.node].name.clone();
        let mut changes = Changes::new(&name, cx.shards);
        state.save(&mut changes, cx)?;
        if let Some(checkpoint) = &mut cx.checkpoint {
            let watermark = changes.watermark();
            let mark = watermark.map(|at| TimeMark::of_step(name, at));
            checkpoint.part.watermarks.extend(mark);
            let layout = changes.take_layout();
            let before = checkpoint.part.changes.len();
            checkpoint.part.changes.extend(changes.records());
            if watermark.is_some() || checkpoint.part.changes.len() > before {
                checkpoint.part.steps.push((self.node, layout));
            }
        }
        Ok(())
    }
}

impl<O: Batch, S> Joined<O, S> {
    /// Passes on output that was not caused by an input batch.
    fn send(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        cx.metrics[self.node].items_out += self.output.len() as u64;
        self.forward(cx)
    }

    fn forward(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        if !self.output.is_empty() {
            self.next.push(&mut self.output, cx)?;
            self.output.clear();
        }
        Ok(())
    }
}

/// Several readers of one stream: each receives the batch, the last one without a copy unless there is a copier.
pub(crate) struct Tee<B>(pub(crate) Vec<Box<dyn Push<B>>>, pub(crate) Copier<B>);

impl<B: Batch> Push<B> for Tee<B> {
    fn push(&mut self, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure> {
        let Tee(readers, copier) = self;
        if let Some(codec) = copier {
            for reader in readers {
                reader.push(&mut copied(&**codec, batch, cx)?, cx)?;
            }
        } else if let Some((last, others)) = readers.split_last_mut() {
            for reader in others {
                reader.push(&mut batch.clone(), cx)?;
            }
            last.push(batch, cx)?;
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.flush(cx))
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.watermark(mark, cx))
    }
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.tick(cx))
    }
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.epoch(epoch, cx))
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0
            .iter_mut()
            .try_for_each(|reader| reader.end(epoch, cx))
    }
}

/// The two halves of a divided stream.
pub(crate) struct Halves<A, B>(
    pub(crate) Box<dyn Push<A>>,
    pub(crate) Box<dyn Push<B>>,
    pub(crate) Unread,
);

/// Counts late items that no step reads, and logs a warning, once.
pub(crate) struct Unread {
    pub(crate) step: usize,
    /// True if a step reads the late items.
    pub(crate) is_read: bool,
    pub(crate) logged: bool,
}

impl Unread {
    /// Notes that the late items so far were dropped.
    #[cold]
    fn drops(&mut self, cx: &mut WorkerContext) {
        let metrics = &mut cx.metrics[self.step];
        metrics.late_dropped = metrics.late;
        if metrics.late == 0 || self.logged {
            return;
        }
        self.logged = true;
        let metrics = &cx.metrics[self.step];
        if cx.figures.first_late(self.step) {
            tracing::warn!(
                step = metrics.name.as_str(),
                "step \"{}\": an item came too late and was dropped, as will be more of them, which are counted; give the stream \
                 `late` of its result a sink to keep them, or allow for more lateness",
                metrics.name
            );
        }
    }
}

impl<A: Batch, B: Batch> Push<(A, B)> for Halves<A, B> {
    fn push(&mut self, batch: &mut (A, B), cx: &mut WorkerContext) -> Result<(), Failure> {
        if !batch.0.is_empty() {
            self.0.push(&mut batch.0, cx)?;
        }
        if !batch.1.is_empty() {
            if !self.2.is_read {
                self.2.drops(cx);
            }
            self.1.push(&mut batch.1, cx)?;
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.flush(cx)?;
        self.1.flush(cx)
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.watermark(mark, cx)?;
        self.1.watermark(mark, cx)
    }
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.tick(cx)?;
        self.1.tick(cx)
    }
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.epoch(epoch, cx)?;
        self.1.epoch(epoch, cx)
    }
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.0.end(epoch, cx)?;
        self.1.end(epoch, cx)
    }
}
