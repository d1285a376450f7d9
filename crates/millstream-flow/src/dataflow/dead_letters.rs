//! The dead-letter sinks of a step on one worker, and their part in epochs.
//!
//! Invariant: a dead letter belongs to the epoch in which its item failed. The epochs of a step and of its
//! dead-letter sinks end together, after all the work of the step on the epoch, so that a run which resumes
//! rolls these sinks back to the last commit as it does other sinks.

use std::cell::RefCell;
use std::rc::Rc;

use crate::checkpoint::WriterId;
use crate::dataflow::context::WorkerContext;
use crate::error::{Cause, Failure};
use crate::panics::Owned;
use crate::policy::{DeadLetters, unwritten};
use crate::sink::{Token, Writer};

/// An open dead-letter sink, without the type of its letters.
trait Open {
    fn prepare(&self, epoch: u64) -> Result<Option<Token>, Cause>;
    fn close(&self) -> Result<Option<Token>, Cause>;
}

impl<B> Open for RefCell<Owned<Box<dyn Writer<B>>>> {
    fn prepare(&self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.borrow_mut().prepare(epoch)
    }
    fn close(&self) -> Result<Option<Token>, Cause> {
        self.borrow_mut().close()
    }
}

/// The dead-letter sinks of one step on one worker.
#[derive(Default)]
pub(crate) struct DeadLetterSinks(Vec<Rc<dyn Open>>);

impl DeadLetterSinks {
    /// Adds an open sink.
    pub(crate) fn add<B: 'static>(&mut self, writer: Owned<Box<dyn Writer<B>>>) -> DeadLetters<B> {
        let writer = Rc::new(RefCell::new(writer));
        self.0.push(Rc::clone(&writer) as Rc<dyn Open>);
        DeadLetters::new(writer)
    }

    /// Prepares the sinks at the end of an epoch of step `node`; adds their tokens to the worker's part of it.
    pub(crate) fn prepare(
        &self,
        node: usize,
        epoch: u64,
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        if self.0.is_empty() || cx.checkpoint.is_none() {
            return Ok(());
        }
        let number = cx.epoch_number(epoch);
        for open in &self.0 {
            add_token(open.prepare(number), node, cx)?;
        }
        Ok(())
    }

    /// Closes the sinks at the end of step `node`, in `epoch`.
    pub(crate) fn close(
        &self,
        node: usize,
        epoch: u64,
        cx: &mut WorkerContext,
    ) -> Result<(), Failure> {
        self.prepare(node, epoch, cx)?;
        for open in &self.0 {
            add_token(open.close(), node, cx)?;
        }
        Ok(())
    }
}

fn add_token(
    token: Result<Option<Token>, Cause>,
    node: usize,
    cx: &mut WorkerContext,
) -> Result<(), Failure> {
    let token =
        token.map_err(|cause| Failure::new(cx.metrics[node].name.clone(), unwritten(cause)))?;
    if let (Some(checkpoint), Some(token)) = (&mut cx.checkpoint, token) {
        let writer = WriterId {
            node,
            dead_letters: true,
        };
        checkpoint.part.tokens.push((writer, token));
    }
    Ok(())
}
