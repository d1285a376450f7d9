//! The interface between fused steps: each part of a chain receives a batch, processes it, and passes its
//! output to the next part by a plain call.

use crate::dataflow::context::WorkerContext;
use crate::error::Failure;
use crate::time::Watermark;

/// The receiving end of a stream inside one chain of fused steps.
pub trait Push<B> {
    /// Takes the items out of `batch`; the caller drops those that remain.
    ///
    /// # Errors
    /// The failure of a later step, which ends the flow.
    fn push(&mut self, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Passes buffered items on; called when the source pauses.
    ///
    /// # Errors
    /// As for `push`.
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Advances event time to `mark`; in order with the batches.
    ///
    /// # Errors
    /// As for `push`.
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Begins a turn of the operator, in which processing time may have advanced. Only called where a step uses
    /// processing time.
    ///
    /// # Errors
    /// As for `push`.
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Ends epoch `epoch` after all its batches have been pushed. Changed states and the tokens of sinks are
    /// added to the worker's part of the epoch.
    ///
    /// # Errors
    /// As for `push`, or a state that cannot be saved.
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Ends the chain after all input: emits the last outputs and closes. This also ends epoch `epoch`.
    ///
    /// # Errors
    /// As for `push`.
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure>;
}
