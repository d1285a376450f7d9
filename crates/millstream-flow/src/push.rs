//! How a batch goes through a chain of fused steps: each part of the chain takes the batch, works, and passes its output to
//! the next by a plain call.

use crate::error::Failure;
use crate::run::context::WorkerContext;
use crate::time::Watermark;

/// The receiving end of a stream inside one chain of fused steps.
pub trait Push<B> {
    /// Takes the items out of `batch`; what is left in it is dropped by the caller.
    ///
    /// # Errors
    /// The failure of a step further on, which ends the flow.
    fn push(&mut self, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Sends on what is buffered; called when the source pauses.
    ///
    /// # Errors
    /// As for `push`.
    fn flush(&mut self, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Event time has come to `mark`; in order with the batches.
    ///
    /// # Errors
    /// As for `push`.
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// A turn of the operator begins; processing time may have gone on. Only called where a step
    /// keeps time.
    ///
    /// # Errors
    /// As for `push`.
    fn tick(&mut self, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// Epoch `epoch` ends; all its batches have been pushed. States that changed and what sinks have
    /// prepared go to the worker's part of the epoch.
    ///
    /// # Errors
    /// As for `push`; a state that cannot be saved.
    fn epoch(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure>;
    /// All input has been seen: last outputs, then close. It is the end of epoch `epoch` too.
    ///
    /// # Errors
    /// As for `push`.
    fn end(&mut self, epoch: u64, cx: &mut WorkerContext) -> Result<(), Failure>;
}
