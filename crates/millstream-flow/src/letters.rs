//! The dead letters of records that the destination of a sink has refused: a second writer beside that of the sink.

use std::sync::Arc;

use crate::control::Control;
use crate::error::Cause;
use crate::node::NodeId;
use crate::panics::Owned;
use crate::sink::{Refused, Sink, Token, Writer};

/// Makes dead letters of refused records, and opens the sink that they go to.
pub(crate) trait Letters: Send + Sync {
    /// Opens the sink for a worker; panics are failures of step `step`.
    fn open(
        &self,
        step: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn LetterWriter>, Cause>;
}

/// The sink of dead letters, open.
pub(crate) trait LetterWriter {
    /// Writes a letter for each record.
    fn write(&mut self, refused: Vec<Refused>) -> Result<(), Cause>;
    /// As for a writer.
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause>;
    /// As for a writer.
    fn close(&mut self) -> Result<Option<Token>, Cause>;
}

/// Letters of type `B` for a sink.
pub(crate) struct LettersTo<B> {
    pub(crate) sink: Arc<dyn Sink<B>>,
    pub(crate) make: Arc<MakeLetters<B>>,
}

/// Makes a batch of letters of refused records.
pub(crate) type MakeLetters<B> = dyn Fn(Vec<Refused>) -> Result<B, Cause> + Send + Sync;

impl<B: 'static> Letters for LettersTo<B> {
    fn open(
        &self,
        step: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn LetterWriter>, Cause> {
        let writer = self.sink.open(worker, control)?;
        Ok(Box::new(Open {
            writer: Owned::new(writer, step, &control.life),
            make: Arc::clone(&self.make),
        }))
    }
}

struct Open<B> {
    writer: Owned<Box<dyn Writer<B>>>,
    make: Arc<MakeLetters<B>>,
}

impl<B> LetterWriter for Open<B> {
    fn write(&mut self, refused: Vec<Refused>) -> Result<(), Cause> {
        if refused.is_empty() {
            return Ok(());
        }
        self.writer.write_batch(&mut (self.make)(refused)?)?;
        self.writer.flush()
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.writer.prepare(epoch)
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.writer.close()
    }
}

/// The letters of the sinks of a flow that have some, by their nodes.
pub(crate) type SinkLetters = Vec<(NodeId, Arc<dyn Letters>)>;
