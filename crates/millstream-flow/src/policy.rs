//! What happens to an item on which a step fails.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Cause, Failure, shorten};
use crate::sink::{Sink, Writer};
use crate::step::Context;

/// An item that a step failed on, as text, with what the step said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The step that failed.
    pub step: String,
    /// The key, where there is one.
    pub key: Option<String>,
    /// The item.
    pub item: Option<String>,
    /// The error and its causes.
    pub error: String,
}

impl std::fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.error)
    }
}

/// What a step does with an item on which it fails.
#[derive(Clone, Default)]
pub enum OnError {
    /// The flow ends with the failure: the default.
    #[default]
    Fail,
    /// The item is counted (`skipped` in the metrics) and passed over.
    Skip,
    /// As `Skip`, and the item is written to a sink.
    DeadLetter(Arc<dyn Sink<Vec<DeadLetter>>>),
}

impl OnError {
    /// Failed items go to `sink`.
    pub fn dead_letter(sink: impl Sink<Vec<DeadLetter>>) -> Self {
        OnError::DeadLetter(Arc::new(sink))
    }
}

/// Failures of which each step tells on standard error; more are only counted.
const TOLD_MAX: u64 = 10;

/// A policy at work: one step, one worker.
pub struct Policy {
    node: usize,
    skips: bool,
    dead: Option<DeadLetters<Vec<DeadLetter>>>,
}

impl Policy {
    /// The policy of the step at `node`, with its dead-letter sink if it has one.
    pub(crate) fn new(
        node: usize,
        on_error: &OnError,
        dead: Option<DeadLetters<Vec<DeadLetter>>>,
    ) -> Self {
        Policy {
            node,
            skips: !matches!(on_error, OnError::Fail),
            dead,
        }
    }

    /// Applies the policy to a failure: `Ok` when the item may be passed over.
    ///
    /// # Errors
    /// The failure itself, or that of the dead-letter sink.
    pub fn settle(
        &mut self,
        key: Option<String>,
        item: Option<String>,
        cause: impl Into<Cause>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let step = cx.metrics[self.node].name.clone();
        let failure = Failure {
            step,
            key: key.as_deref().map(shorten),
            item: item.as_deref().map(shorten),
            cause: cause.into(),
        };
        if !self.skips {
            return Err(failure);
        }
        cx.skipped(self.node);
        if cx.metrics[self.node].skipped <= TOLD_MAX {
            tracing::warn!(
                step = failure.step.as_str(),
                key = failure.key.as_deref(),
                item = failure.item.as_deref(),
                "skipped: {failure}"
            );
        }
        if let Some(dead) = &self.dead {
            let error = failure.to_string();
            let letter = DeadLetter {
                step: failure.step.clone(),
                key,
                item,
                error,
            };
            dead.write(&mut vec![letter])
                .map_err(|cause| Failure::new(failure.step, unwritten(&cause)))?;
        }
        Ok(())
    }

    /// As `settle`, with the item shown by `Debug`.
    ///
    /// # Errors
    /// As for `settle`.
    pub fn settle_item(
        &mut self,
        key: Option<&dyn Debug>,
        item: &dyn Debug,
        cause: impl Into<Cause>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let key = key.map(|key| format!("{key:?}"));
        self.settle(key, Some(format!("{item:?}")), cause, cx)
    }
}

/// The dead-letter sink of a step, open on one worker.
///
/// The maker of the step opens it. The engine prepares it at the end of each
/// epoch, and closes it at the end of the run.
pub struct DeadLetters<B>(Rc<RefCell<Box<dyn Writer<B>>>>);

impl<B: 'static> DeadLetters<B> {
    pub(crate) fn new(writer: Rc<RefCell<Box<dyn Writer<B>>>>) -> Self {
        DeadLetters(writer)
    }

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

/// A dead-letter sink has failed.
pub(crate) fn unwritten(cause: &Cause) -> Cause {
    format!("the dead letter could not be written: {cause}").into()
}
