//! States of steps without timers.

use super::table::Table;
use crate::checkpoint::{Changes, Codec, Restore};
use crate::error::{Failure, FlowError};
use crate::key::Key;
use crate::step::{Context, StateSize, Stateful};

/// The states of a step on one worker. Keys keep the order of their first items, so that the order of the
/// output at the end does not depend on a hash seed.
pub(crate) struct Plain<K, S>(Table<K, S>);

impl<K, S> Default for Plain<K, S> {
    fn default() -> Self {
        Plain(Table::default())
    }
}

impl<K: Key, S: 'static> Plain<K, S> {
    /// Returns the state of a key, which will be changed; `init` creates it at the first item.
    #[inline]
    pub(crate) fn touch(&mut self, key: &K, init: impl FnOnce(&K) -> S) -> &mut S {
        self.0.entry(key, init)
    }

    /// Begins a batch: new keys must belong to this worker.
    pub(crate) fn begin(&mut self, cx: &Context) {
        self.0.belongs_to(cx.place());
    }

    /// Fails if a new key of a batch had a hash that is not stable.
    pub(crate) fn check_hashes(&mut self, cx: &Context) -> Result<(), Failure> {
        self.0.check_hashes(|| cx.step_name())
    }

    /// Passes all keys and their states to `each`, in the order of their first items.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(&K, &mut S)) {
        for slot in self.0.in_order() {
            if let Some(held) = self.0.get_mut(slot) {
                each(&held.key, &mut held.state);
            }
        }
    }
}

impl<K: Key, S: 'static> Stateful for Plain<K, S> {
    fn size(&self) -> Option<StateSize> {
        Some(self.0.size())
    }

    fn save(&mut self, changes: &mut Changes, cx: &mut Context) -> Result<(), Failure> {
        self.0.save(&cx.step_name(), changes)
    }

    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let codec: Codec<S> = from.codecs().get().map_err(|cause| from.unsaved(cause))?;
        self.0.restore(Box::new(codec), from)
    }
}
