//! The saved state of a step when a run resumes.

use super::codec::Codecs;
use crate::error::{Cause, FlowError, shorten};
use crate::key::{Key, Shards, show, worker_of};

/// The saved states of all steps.
pub(crate) trait SavedStates {
    /// Returns the keys of a step in the shards for which `wanted` is true.
    fn keys(&self, step: &str, wanted: &dyn Fn(usize) -> bool) -> Result<Vec<SavedKey>, FlowError>;
    /// Returns the types whose values can be saved.
    fn codecs(&self) -> &Codecs;
    /// Whether shards have moved to other workers.
    fn moved(&self) -> bool;
    /// Returns the saved event time of a step.
    fn watermark(&self, step: &str) -> i64;
}

/// A key of a step, as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SavedKey {
    /// The creation number of the key: keys that are emitted in an order are emitted in the order of these
    /// numbers.
    pub born: u64,
    /// The key's shard.
    pub shard: usize,
    /// The key, MessagePack.
    pub key: Vec<u8>,
    /// The tag of the encoding of the state.
    pub tag: u8,
    /// The state.
    pub state: Vec<u8>,
}

/// The state of one step, as of the last commit.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Restore<'a> {
    pub(crate) saved: &'a dyn SavedStates,
    pub(crate) step: &'a str,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
    pub(crate) shards: Shards,
}

impl Restore<'_> {
    /// Returns the name of the step.
    #[must_use]
    pub fn step(&self) -> &str {
        self.step
    }

    /// Returns the types whose values can be saved.
    #[must_use]
    pub fn codecs(&self) -> &Codecs {
        self.saved.codecs()
    }

    /// True if the run has another number of workers than the one before, so that keys have moved to other
    /// workers.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.saved.moved()
    }

    /// Returns the saved event time of the step; nanoseconds.
    #[must_use]
    pub fn watermark(&self) -> i64 {
        self.saved.watermark(self.step)
    }

    /// Returns the number of this worker, and the number of workers.
    #[must_use]
    pub fn place(&self) -> (usize, usize) {
        (self.worker, self.workers)
    }

    /// Checks that a restored key has the hash with which it was saved.
    ///
    /// # Errors
    /// [`FlowError::UnstableKey`]
    pub(crate) fn check_hash<K: Key>(&self, key: &K, saved: &SavedKey) -> Result<(), FlowError> {
        let shard = self.shards.of(key.stable_hash());
        if shard == saved.shard {
            Ok(())
        } else {
            Err(FlowError::UnstableKey {
                step: self.step.to_owned(),
                key: shorten(&format!("{key:?}")),
                type_name: std::any::type_name::<K>(),
                found: format!(
                    "it was saved in shard {}, and its hash is that of shard {shard} now",
                    saved.shard
                ),
            })
        }
    }

    /// Returns the step's keys that belong to this worker, in the order of their creation numbers.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        let mine = |shard| worker_of(shard, self.workers) == self.worker;
        self.saved.keys(self.step, &mine)
    }

    /// Returns all keys of the step, including those of other workers.
    ///
    /// # Errors
    /// A damaged state directory.
    pub fn all_keys(&self) -> Result<Vec<SavedKey>, FlowError> {
        self.saved.keys(self.step, &|_| true)
    }

    /// Returns the error that the state of this step cannot be saved.
    #[must_use]
    pub fn unsaved(&self, cause: Cause) -> FlowError {
        FlowError::Unsaved {
            step: self.step.to_owned(),
            cause,
        }
    }

    /// Returns the error that a key of this step cannot be read.
    #[must_use]
    pub fn unreadable(&self, key: &SavedKey, cause: impl Into<Cause>) -> FlowError {
        FlowError::Unreadable {
            step: self.step.to_owned(),
            key: show(&key.key),
            cause: cause.into(),
        }
    }
}
