//! What a worker keeps that belongs to no key: calls under way, for instance. It is saved under a key of the worker's own, so
//! that it finds another worker where there are fewer.

use super::{Changes, REMOVED, Restore};
use crate::error::{Cause, FlowError};
use crate::key::{Key, key_of_worker, shard};
use crate::state::codec::MESSAGE_PACK;

/// The state of a step on one worker.
pub struct OfWorker {
    key: u64,
    /// What was saved last, if it was not nothing.
    saved: Option<Vec<u8>>,
    /// Keys of other workers whose state was taken up, and is saved under this one's from now on.
    taken_up: Vec<u64>,
}

impl OfWorker {
    /// Nothing yet.
    #[must_use]
    pub fn new(worker: usize) -> Self {
        OfWorker {
            key: key_of_worker(worker),
            saved: None,
            taken_up: Vec::new(),
        }
    }

    /// An epoch ends: notes the state, MessagePack or nothing, if it has changed.
    ///
    /// # Errors
    /// What the changes say.
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

    /// A run begins: hands each state that belongs to this worker now to `take_up`.
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
            let key = key.ok_or_else(|| from.unreadable(&saved, "it is no worker's"))?;
            take_up(&mut &saved.state[..]).map_err(|cause| from.unreadable(&saved, cause))?;
            match key == self.key {
                true => self.saved = Some(saved.state),
                false => self.taken_up.push(key),
            }
        }
        Ok(())
    }
}

/// Writes the state of a worker, or that it is gone.
fn put(key: u64, state: Option<&[u8]>, changes: &mut Changes) -> Result<(), Cause> {
    let write = |out: &mut Vec<u8>| {
        out.extend(state.unwrap_or_default());
        Ok(state.map_or(REMOVED, |_| MESSAGE_PACK))
    };
    changes.put(shard(key.stable_hash()), 0, |out| key.save(out), write)
}
