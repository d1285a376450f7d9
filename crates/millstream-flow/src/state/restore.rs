//! What a step finds of its state when a run resumes.

use super::codec::Codecs;
use crate::error::{Cause, FlowError};
use crate::key::{show, worker_of};

/// What is saved of all steps.
pub(crate) trait SavedStates {
    /// The keys of a step in the shards that are `wanted`.
    fn keys(&self, step: &str, wanted: &dyn Fn(usize) -> bool) -> Result<Vec<SavedKey>, FlowError>;
    /// The types whose values can be saved.
    fn codecs(&self) -> &Codecs;
    /// Whether shards are on other workers than before.
    fn moved(&self) -> bool;
    /// How far event time had come for a step.
    fn watermark(&self, step: &str) -> i64;
}

/// A key of a step, as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedKey {
    /// Keys that are given in an order are given in that of these numbers.
    pub born: u64,
    /// The key's shard.
    pub shard: usize,
    /// The key, MessagePack.
    pub key: Vec<u8>,
    /// How the state is written.
    pub tag: u8,
    /// The state.
    pub state: Vec<u8>,
}

/// The state of one step, as of the last commit.
pub struct Restore<'a> {
    pub(crate) saved: &'a dyn SavedStates,
    pub(crate) step: &'a str,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

impl Restore<'_> {
    /// The name of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        self.step
    }

    /// The types whose values can be saved.
    #[must_use]
    pub fn codecs(&self) -> &Codecs {
        self.saved.codecs()
    }

    /// True when the run has another number of workers than the one before, so that what each of them has
    /// is no longer what it had.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.saved.moved()
    }

    /// How far event time had come for the step; nanoseconds.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.saved.watermark(self.step)
    }

    /// This worker, and how many there are.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        (self.worker, self.workers)
    }

    /// The step's keys that belong to this worker, in the order of their numbers.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        let mine = |shard| worker_of(shard, self.workers) == self.worker;
        self.saved.keys(self.step, &mine)
    }

    /// All keys of the step, those of other workers too.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn all_keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        self.saved.keys(self.step, &|_| true)
    }

    /// The state of this step cannot be saved.
    #[must_use]
    pub fn unsaved(&self, cause: Cause) -> FlowError {
        FlowError::Unsaved {
            step: self.step.to_owned(),
            cause,
        }
    }

    /// A key of this step cannot be read.
    #[must_use]
    pub fn unreadable(&self, key: &SavedKey, cause: impl Into<Cause>) -> FlowError {
        FlowError::Unreadable {
            step: self.step.to_owned(),
            key: show(&key.key),
            cause: cause.into(),
        }
    }
}
