//! What happens to an item on which a step fails.

use std::fmt::Debug;
use std::sync::Arc;

use crate::describe::stream::Making;
use crate::error::{Cause, Failure, FlowError, shorten};
use crate::push::Context;
use crate::run::letters::{DeadLetters, unwritten};
use crate::sink::Sink;

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
    /// Opens a policy for the step that is being made.
    ///
    /// # Errors
    /// The dead-letter sink cannot be opened.
    pub(crate) fn open(policy: &OnError, making: &Making<'_>) -> Result<Self, FlowError> {
        let dead = match policy {
            OnError::DeadLetter(sink) => Some(making.dead_letters(&**sink)?),
            _ => None,
        };
        Ok(Policy {
            node: making.node,
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
