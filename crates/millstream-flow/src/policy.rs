//! What happens to an item on which a step fails.

use std::fmt::Debug;
use std::sync::Arc;

use crate::control::Control;
use crate::error::{Cause, Failure, FlowError, shorten};
use crate::push::Context;
use crate::sink::{Sink, Writer};

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

fn unwritten(cause: &Cause) -> Cause {
    format!("the dead letter could not be written: {cause}").into()
}

/// Failures of which each step tells on standard error; more are only counted.
const TOLD_MAX: u64 = 10;

/// A policy at work: one step, one worker.
pub struct Policy {
    node: usize,
    skips: bool,
    dead: Option<Box<dyn Writer<Vec<DeadLetter>>>>,
}

impl Policy {
    /// Opens a policy for the step `node`, which is named `step`, on one worker.
    ///
    /// # Errors
    /// The dead-letter sink cannot be opened.
    pub fn open(
        policy: &OnError,
        node: usize,
        step: &str,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Self, FlowError> {
        let dead = match policy {
            OnError::DeadLetter(sink) => {
                let what = || format!("dead letters of \"{step}\" ({})", sink.describe());
                let opened = match control.rehearsal() {
                    Some(rehearsal) => rehearsal
                        .dead_letters(step, &**sink)
                        .and_then(|instead| instead.open(worker, control)),
                    None => sink.open(worker, control),
                };
                Some(opened.map_err(|cause| FlowError::Open {
                    what: what(),
                    cause,
                })?)
            }
            _ => None,
        };
        Ok(Policy {
            node,
            skips: !matches!(policy, OnError::Fail),
            dead,
        })
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
        if let Some(dead) = &mut self.dead {
            let error = failure.to_string();
            let letter = DeadLetter {
                step: failure.step.clone(),
                key,
                item,
                error,
            };
            dead.write_batch(&mut vec![letter])
                .and_then(|()| dead.flush())
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

    /// Closes the dead-letter sink.
    ///
    /// # Errors
    /// What the sink says.
    pub fn close(&mut self, cx: &Context) -> Result<(), Failure> {
        match &mut self.dead {
            Some(dead) => dead.close().map(drop).map_err(|cause| {
                Failure::new(cx.metrics[self.node].name.clone(), unwritten(&cause))
            }),
            None => Ok(()),
        }
    }
}
