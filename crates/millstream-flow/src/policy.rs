//! Policies for an item on which a step fails.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Cause, Failure, chain, context, shorten};
use crate::metrics::failures::Outcome;
use crate::panics::Owned;
use crate::sink::{Refused, Sink, Writer};
use crate::step::Context;

/// An item on which a step failed, as text, with the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The step that failed.
    pub step: String,
    /// The key, if there is one.
    pub key: Option<String>,
    /// The item.
    pub item: Option<String>,
    /// The error and its causes.
    pub error: String,
}

impl DeadLetter {
    /// The letter of a record that the destination of the sink `step` has refused.
    pub(crate) fn of_refused(step: &str, refused: &Refused) -> Self {
        let item = String::from_utf8_lossy(&refused.record).into_owned();
        let place = refused.number.map(|number| format!("record {number}"));
        let failure = Failure {
            item: place,
            ..Failure::new(step, refused.reason.as_str())
        };
        DeadLetter {
            step: step.to_owned(),
            key: None,
            item: Some(item),
            error: chain(&failure).to_string(),
        }
    }
}

impl std::fmt::Display for DeadLetter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.error)
    }
}

/// The policy of a step for an item on which it fails.
#[derive(Clone, Default)]
pub enum OnError {
    /// The flow ends with the failure: the default.
    #[default]
    Fail,
    /// The item is counted (`skipped` in the metrics) and skipped.
    Skip,
    /// As `Skip`, and the item is written to a sink.
    DeadLetter(Arc<dyn Sink<Vec<DeadLetter>>>),
}

impl OnError {
    /// Failed items go to `sink`.
    ///
    /// ```
    /// use millstream_flow::{DeadLetter, Flow, OnError, Options, testing};
    ///
    /// let (flow, good) = (Flow::new("ages"), testing::Collected::new());
    /// let bad = testing::Collected::<DeadLetter>::new();
    /// flow.source("texts", testing::items(["31", "x", "27"]))
    ///     .try_map("age", OnError::dead_letter(bad.sink()), |text: &&str| text.parse::<u32>())
    ///     .sink("ages", good.sink());
    /// let report = flow.run(Options::default())?;
    /// assert_eq!(good.take(), [31, 27]);
    /// let letters: Vec<_> = bad.take().into_iter().map(|letter| letter.item).collect();
    /// assert_eq!(letters, [Some("\"x\"".to_owned())]);
    /// assert_eq!(report.step("age").unwrap().skipped, 1);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn dead_letter(sink: impl Sink<Vec<DeadLetter>>) -> Self {
        OnError::DeadLetter(Arc::new(sink))
    }
}

/// The number of failures that each step reports on standard error; further ones are only counted.
const LOGGED_MAX: u64 = 10;

/// The policy of one step on one worker.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Policy {
    node: usize,
    skips: bool,
    /// Whether the items that it skips are dead letters, which it writes or its owner does.
    keeps: bool,
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
            keeps: dead.is_some(),
            dead,
        }
    }

    /// The same policy, for a step that writes the items which are skipped as dead letters itself.
    #[must_use]
    pub fn with_own_dead_letters(self) -> Self {
        Policy {
            keeps: true,
            ..self
        }
    }

    /// Applies the policy to a failure: `Ok` if the item is skipped.
    ///
    /// # Errors
    /// The failure itself, or that of the dead-letter sink.
    pub fn apply(
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
        if self.keeps {
            cx.dead_letter(self.node);
        }
        if let Some(failures) = cx.control.figures.failures() {
            failures.note(&failure, self.outcome());
        }
        if cx.metrics[self.node].skipped <= LOGGED_MAX {
            tracing::warn!(
                step = failure.step.as_str(),
                key = failure.key.as_deref(),
                item = failure.item.as_deref(),
                "skipped: {}",
                chain(&failure)
            );
        }
        if let Some(dead) = &self.dead {
            let error = chain(&failure).to_string();
            let letter = DeadLetter {
                step: failure.step.clone(),
                key,
                item,
                error,
            };
            dead.write(&mut vec![letter])
                .map_err(|cause| Failure::new(failure.step, unwritten(cause)))?;
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        if self.keeps {
            Outcome::DeadLetter
        } else {
            Outcome::Skipped
        }
    }

    /// Applies the policy to a failure, with the item formatted by `Debug`.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub fn apply_to_item(
        &mut self,
        key: Option<&dyn Debug>,
        item: &dyn Debug,
        cause: impl Into<Cause>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let key = key.map(|key| format!("{key:?}"));
        self.apply(key, Some(format!("{item:?}")), cause, cx)
    }
}

/// The dead-letter sink of a step, open on one worker.
///
/// The maker of the step opens it. The engine prepares it at the end of each
/// epoch, and closes it at the end of the run.
#[doc(hidden)] // For the other crates of Millstream.
pub struct DeadLetters<B>(Rc<RefCell<Owned<Box<dyn Writer<B>>>>>);

impl<B: 'static> DeadLetters<B> {
    pub(crate) fn new(writer: Rc<RefCell<Owned<Box<dyn Writer<B>>>>>) -> Self {
        DeadLetters(writer)
    }

    /// Writes letters, and flushes them at once: failed items are rare.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn write(&self, letters: &mut B) -> Result<(), Cause> {
        let mut writer = self.0.borrow_mut();
        writer.write_batch(letters)?;
        writer.flush()
    }
}

/// The error of a failed dead-letter sink.
pub(crate) fn unwritten(cause: Cause) -> Cause {
    context("the dead letter could not be written", cause)
}
