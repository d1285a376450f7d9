//! What a sink is: a description that every worker shares, and a writer on each worker.

use std::sync::Arc;

use crate::control::Control;
use crate::error::Cause;

/// A sink of a flow.
pub trait Sink<B>: Send + Sync + 'static {
    /// The kind and the place, for people: `tcp connect 127.0.0.1:7002`.
    fn describe(&self) -> String;
    /// Opens the sink for one worker.
    ///
    /// # Errors
    /// A refused connection, a file that cannot be made.
    fn open(&self, worker: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<B>>, Cause>;
}

/// A sink on one worker.
pub trait Writer<B> {
    /// Takes the items out of `batch`. May wait: that is what back-pressure is.
    ///
    /// # Errors
    /// A receiver that went away, a full disk.
    fn write_batch(&mut self, batch: &mut B) -> Result<(), Cause>;
    /// Hands on what is buffered.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn flush(&mut self) -> Result<(), Cause>;
    /// Flushes and closes, at the end of the flow.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn close(&mut self) -> Result<(), Cause> {
        self.flush()
    }
}
