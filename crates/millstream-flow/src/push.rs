//! How a batch goes through a chain of fused steps: each step is handed the batch, works, and
//! hands its output to the next by a plain call.

use std::sync::Arc;

use crate::batch::Batch;
use crate::clock::now_ns;
use crate::control::Control;
use crate::error::Failure;
use crate::metrics::StepMetrics;

/// The worker's side of a step: who it is, what time it is, where its counters are.
pub struct Context {
    /// This worker's number, from 0.
    pub worker: usize,
    /// How many workers there are.
    pub workers: usize,
    /// When the current batch was whole at its source; nanoseconds of the engine's clock.
    pub stamp: u64,
    pub(crate) last: u64,
    pub(crate) current: usize,
    pub(crate) activity: u64,
    pub(crate) metrics: Vec<StepMetrics>,
    /// Stop, failure and wake-up, shared by all workers.
    pub control: Arc<Control>,
}

impl Context {
    /// Starts the account of a batch that was whole at `stamp`.
    pub(crate) fn begin(&mut self, stamp: u64, now: u64) {
        self.stamp = stamp;
        self.last = now;
        self.activity += 1;
    }

    /// Books a step's work on a batch: one clock read.
    pub(crate) fn book(&mut self, node: usize, items_in: usize, items_out: usize) {
        let now = now_ns();
        let step = &mut self.metrics[node];
        step.items_in += items_in as u64;
        step.items_out += items_out as u64;
        step.batches += 1;
        step.busy_ns += now.saturating_sub(self.last);
        let age = now.saturating_sub(self.stamp).max(1);
        step.latency_ns.saturating_record_n(age, items_in as u64);
        self.last = now;
    }

    /// Counts an item that step `node` passed over.
    pub(crate) fn skipped(&mut self, node: usize) {
        self.metrics[node].skipped += 1;
    }
}

/// The receiving end of a stream inside one chain of fused steps.
pub trait Push<B> {
    /// Takes the items out of `batch`; what is left in it is dropped by the caller.
    ///
    /// # Errors
    /// The failure of a step further on, which ends the flow.
    fn push(&mut self, batch: &mut B, cx: &mut Context) -> Result<(), Failure>;
    /// Sends on what is buffered; called when the source pauses.
    ///
    /// # Errors
    /// As for `push`.
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure>;
    /// All input has been seen: last outputs, then close.
    ///
    /// # Errors
    /// As for `push`.
    fn end(&mut self, cx: &mut Context) -> Result<(), Failure>;
}

/// A step of a flow, on one worker: batches in, batches out.
pub trait Step<I, O>: 'static {
    /// Works on `input` and appends to `output`.
    ///
    /// # Errors
    /// The failure that ends the flow; a step that may skip items does so itself.
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure>;
    /// All input has been seen: append what is still to come.
    ///
    /// # Errors
    /// As for `apply`.
    fn end(&mut self, _output: &mut O, _cx: &mut Context) -> Result<(), Failure> {
        Ok(())
    }
}

/// A step joined to what follows it.
pub(crate) struct Joined<O, S> {
    pub(crate) node: usize,
    pub(crate) step: S,
    pub(crate) output: O,
    pub(crate) next: Box<dyn Push<O>>,
}

impl<I: Batch, O: Batch> Push<I> for Joined<O, Box<dyn Step<I, O>>> {
    fn push(&mut self, batch: &mut I, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        let items = batch.len();
        self.step.apply(batch, &mut self.output, cx)?;
        cx.book(self.node, items, self.output.len());
        self.forward(cx)
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.next.flush(cx)
    }
    fn end(&mut self, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        self.step.end(&mut self.output, cx)?;
        cx.metrics[self.node].items_out += self.output.len() as u64;
        self.forward(cx)?;
        self.next.end(cx)
    }
}

impl<O: Batch, S> Joined<O, S> {
    fn forward(&mut self, cx: &mut Context) -> Result<(), Failure> {
        if !self.output.is_empty() {
            self.next.push(&mut self.output, cx)?;
            self.output.clear();
        }
        Ok(())
    }
}

/// Several readers of one stream: each gets the batch, the last one without a copy.
pub(crate) struct Tee<B>(pub(crate) Vec<Box<dyn Push<B>>>);

impl<B: Batch> Push<B> for Tee<B> {
    fn push(&mut self, batch: &mut B, cx: &mut Context) -> Result<(), Failure> {
        if let Some((last, others)) = self.0.split_last_mut() {
            for reader in others {
                reader.push(&mut batch.clone(), cx)?;
            }
            last.push(batch, cx)?;
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.flush(cx))
    }
    fn end(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|reader| reader.end(cx))
    }
}

/// A stream divided in two.
pub(crate) struct Fork<B, F> {
    pub(crate) node: usize,
    pub(crate) divide: F,
    pub(crate) parts: (B, B),
    pub(crate) next: (Box<dyn Push<B>>, Box<dyn Push<B>>),
}

impl<B: Batch, F> Push<B> for Fork<B, F>
where
    F: FnMut(&mut B, &mut B, &mut B, &mut Context) -> Result<(), Failure>,
{
    fn push(&mut self, batch: &mut B, cx: &mut Context) -> Result<(), Failure> {
        cx.current = self.node;
        let items = batch.len();
        (self.divide)(batch, &mut self.parts.0, &mut self.parts.1, cx)?;
        cx.book(self.node, items, self.parts.0.len() + self.parts.1.len());
        for (part, next) in [
            (&mut self.parts.0, &mut self.next.0),
            (&mut self.parts.1, &mut self.next.1),
        ] {
            if !part.is_empty() {
                next.push(part, cx)?;
                part.clear();
            }
        }
        Ok(())
    }
    fn flush(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.next.0.flush(cx)?;
        self.next.1.flush(cx)
    }
    fn end(&mut self, cx: &mut Context) -> Result<(), Failure> {
        self.next.0.end(cx)?;
        self.next.1.end(cx)
    }
}
