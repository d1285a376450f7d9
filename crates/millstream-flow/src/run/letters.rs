//! Where the dead letters of a step go on one worker, and how they take part in epochs.
//!
//! Invariant: a dead letter belongs to the epoch in which its item failed. The epochs of a step and of its
//! dead-letter sinks end together, after all its work on the epoch has been done, so that a run which
//! resumes takes these sinks back to the last commit as it does the others.

use std::cell::RefCell;
use std::rc::Rc;

use crate::checkpoint::WriterId;
use crate::error::{Cause, Failure};
use crate::push::Context;
use crate::sink::{Token, Writer};

/// The dead-letter sink of a step, open on one worker.
///
/// [`Making::dead_letters`](crate::describe::stream::Making::dead_letters) opens it. The engine prepares it at the end of each
/// epoch, and closes it at the end of the run.
pub struct DeadLetters<B>(Rc<RefCell<Box<dyn Writer<B>>>>);

impl<B: 'static> DeadLetters<B> {
    /// Writes letters, and passes them on at once: bad items are rare.
    ///
    /// # Errors
    /// What the sink says.
    pub fn write(&self, letters: &mut B) -> Result<(), Cause> {
        let mut writer = self.0.borrow_mut();
        writer.write_batch(letters)?;
        writer.flush()
    }
}

/// An open dead-letter sink, whatever its letters are.
trait Open {
    fn prepare(&self, epoch: u64) -> Result<Option<Token>, Cause>;
    fn close(&self) -> Result<Option<Token>, Cause>;
}

impl<B> Open for RefCell<Box<dyn Writer<B>>> {
    fn prepare(&self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.borrow_mut().prepare(epoch)
    }
    fn close(&self) -> Result<Option<Token>, Cause> {
        self.borrow_mut().close()
    }
}

/// The dead-letter sinks of one step on one worker.
#[derive(Default)]
pub(crate) struct Letters(Vec<Rc<dyn Open>>);

impl Letters {
    /// Adds a sink that is open.
    pub(crate) fn add<B: 'static>(&mut self, writer: Box<dyn Writer<B>>) -> DeadLetters<B> {
        let writer = Rc::new(RefCell::new(writer));
        self.0.push(Rc::clone(&writer) as Rc<dyn Open>);
        DeadLetters(writer)
    }

    /// Step `node` has ended an epoch: what the sinks have prepared goes to the worker's part of it.
    pub(crate) fn prepare(&self, node: usize, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        if self.0.is_empty() || cx.keeping.is_none() {
            return Ok(());
        }
        let number = cx.epoch_number(epoch);
        for open in &self.0 {
            keep(open.prepare(number), node, cx)?;
        }
        Ok(())
    }

    /// Step `node` has ended with `epoch`.
    pub(crate) fn close(&self, node: usize, epoch: u64, cx: &mut Context) -> Result<(), Failure> {
        self.prepare(node, epoch, cx)?;
        for open in &self.0 {
            keep(open.close(), node, cx)?;
        }
        Ok(())
    }
}

fn keep(token: Result<Option<Token>, Cause>, node: usize, cx: &mut Context) -> Result<(), Failure> {
    let token =
        token.map_err(|cause| Failure::new(cx.metrics[node].name.clone(), unwritten(&cause)))?;
    if let (Some(keeping), Some(token)) = (&mut cx.keeping, token) {
        let writer = WriterId {
            node,
            dead_letters: true,
        };
        keeping.part.tokens.push((writer, token));
    }
    Ok(())
}

/// A dead-letter sink has failed.
pub(crate) fn unwritten(cause: &Cause) -> Cause {
    format!("the dead letter could not be written: {cause}").into()
}
