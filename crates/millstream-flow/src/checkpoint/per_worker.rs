//! State of a step on one worker that belongs to no key, for instance calls in progress. It is saved under a
//! key of the worker, so that another worker restores it where a run has fewer workers.

use super::{Changes, REMOVED, Restore};
use crate::error::{Cause, FlowError};
use crate::key::{Key, Shards, key_of_worker};
use crate::saved::codec::MESSAGE_PACK;

/// The state of a step on one worker.
#[doc(hidden)] // For the other crates of Millstream.
pub struct PerWorker {
    key: u64,
    /// The state that was saved last; `None` if there was none.
    saved: Option<Vec<u8>>,
    /// Keys of other workers whose states were restored here, and are saved under this worker's key from now
    /// on.
    taken_up: Vec<u64>,
}

impl PerWorker {
    /// An empty state.
    #[must_use]
    pub fn new(worker: usize, shards: Shards) -> Self {
        PerWorker {
            key: key_of_worker(worker, shards),
            saved: None,
            taken_up: Vec::new(),
        }
    }

    /// Saves the state at the end of an epoch if it has changed: MessagePack, or `None` to remove it.
    ///
    /// # Errors
    /// An error of the changes.
    pub fn save(&mut self, state: Option<Vec<u8>>, changes: &mut Changes) -> Result<(), Cause> {
        for key in self.taken_up.drain(..) {
            put(key, None, changes)?;
        }
        if state != self.saved {
            put(self.key, state.as_deref(), changes)?;
            self.saved = state;
        }
        Ok(())
    }

    /// Restores states at the beginning of a run: passes each one that now belongs to this worker to `take_up`.
    ///
    /// # Errors
    /// A state that cannot be read.
    pub fn restore(
        &mut self,
        from: &Restore<'_>,
        mut take_up: impl FnMut(&mut &[u8]) -> Result<(), Cause>,
    ) -> Result<(), FlowError> {
        for saved in from.keys()? {
            let key = u64::load(&mut &saved.key[..]);
            let key =
                key.ok_or_else(|| from.unreadable(&saved, "it does not belong to a worker"))?;
            take_up(&mut &saved.state[..]).map_err(|cause| from.unreadable(&saved, cause))?;
            if key == self.key {
                self.saved = Some(saved.state)
            } else {
                self.taken_up.push(key)
            }
        }
        Ok(())
    }
}

/// Writes the state of a worker, or its removal.
fn put(key: u64, state: Option<&[u8]>, changes: &mut Changes) -> Result<(), Cause> {
    let write = |out: &mut Vec<u8>| {
        out.extend(state.unwrap_or_default());
        Ok(state.map_or(REMOVED, |_| MESSAGE_PACK))
    };
    let shard = changes.shards().of(key.stable_hash());
    changes.put(shard, 0, |out| key.save(out), write)
}
