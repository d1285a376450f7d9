//! What a source is: a description that every worker shares, and partitions that one worker reads.

use crate::error::Cause;
use crate::poller::Io;
use crate::push::Context;

/// Where a partition stands, in its own unit: bytes of a file, items of a list, messages of a
/// socket. A partition opened at a position goes on behind it.
pub type Position = u64;

/// What asking for a batch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A batch.
    Batch,
    /// Nothing now; see [`Partition::next_awake`].
    Idle,
    /// Nothing any more.
    End,
    /// Input that breaks off without an end: the flow fails, as it would at a crash.
    Abort,
}

/// A source of a flow.
pub trait Source<B>: Send + Sync + 'static {
    /// The kind and the place, for people: `tcp listen 127.0.0.1:7001`.
    fn describe(&self) -> String;
    /// The names of the partitions; they are dealt to the workers in turn.
    ///
    /// # Errors
    /// A file that is not there, for instance.
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Ok(vec!["0".to_owned()])
    }
    /// Opens a partition, at its start or behind `resume`.
    ///
    /// # Errors
    /// A port in use, a file that cannot be read.
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause>;
}

/// One partition of a source, on the worker that reads it.
pub trait Partition<B> {
    /// Puts the next items into the empty `batch`. Never waits.
    ///
    /// # Errors
    /// What ends the flow. Input that only one client can have spoiled is counted, not raised.
    fn next_batch(&mut self, batch: &mut B, cx: &mut Events<'_>) -> Result<Next, Cause>;
    /// After [`Next::Idle`]: when to ask again, in nanoseconds of the engine's clock; `None` when
    /// a watched socket will say so.
    fn next_awake(&self) -> Option<u64> {
        None
    }
    /// The position behind the last batch.
    fn position(&self) -> Position;
}

/// Where a partition reports what is no batch.
pub struct Events<'a> {
    pub(crate) cx: &'a mut Context,
    pub(crate) node: usize,
}

impl Events<'_> {
    /// Input was given up: a client sent a frame too long, or broke off inside one. Counted as a
    /// fault of the source and said on standard error.
    pub fn fault(&mut self, what: &str) {
        let step = &mut self.cx.metrics[self.node];
        step.faults += 1;
        eprintln!("millstream: source \"{}\": {what}", step.name);
    }
}
