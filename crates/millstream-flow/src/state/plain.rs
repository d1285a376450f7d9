//! States of steps that know no time: a table in the order of the keys' first items, which knows what has
//! changed since the last epoch.

use foldhash::fast::FixedState;
use indexmap::IndexMap;

use crate::error::{Failure, FlowError};
use crate::key::{Key, shard};
use crate::recovery::codec::{Codec, MESSAGE_PACK};
use crate::recovery::{Changes, Restore};

/// A state, and in which epoch it was last touched.
struct Held<S> {
    state: S,
    touched: u32,
}

/// The states of a step on one worker. Keys keep the order of their first item, so that what is given at
/// the end does not depend on a hash seed.
pub(crate) struct Plain<K, S> {
    states: IndexMap<K, Held<S>, FixedState>,
    /// Counts epochs; it stays 0 without recovery, so that nothing is ever noted.
    epoch: u32,
    /// The places of the keys that were touched in this epoch.
    changed: Vec<usize>,
    codec: Option<Codec<S>>,
}

impl<K, S> Default for Plain<K, S> {
    fn default() -> Self {
        Plain {
            states: IndexMap::default(),
            epoch: 0,
            changed: Vec::new(),
            codec: None,
        }
    }
}

impl<K: Key, S: 'static> Plain<K, S> {
    /// The state of a key, which is about to change; `init` makes it at the first item.
    #[inline]
    pub(crate) fn touch(&mut self, key: &K, init: impl FnOnce(&K) -> S) -> &mut S {
        let place = match self.states.get_index_of(key) {
            Some(place) => place,
            None => {
                let (state, touched) = (init(key), 0);
                let held = Held { state, touched };
                self.states.insert_full(key.clone(), held).0
            }
        };
        let held = &mut self.states[place];
        if held.touched != self.epoch {
            held.touched = self.epoch;
            self.changed.push(place);
        }
        &mut held.state
    }

    /// All keys and their states, in the order of their first items.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut S)> {
        let states = self.states.iter_mut();
        states.map(|(key, held)| (key, &mut held.state))
    }

    /// Writes the keys that changed in this epoch, and begins the next.
    pub(crate) fn save(&mut self, step: &str, changes: &mut Changes) -> Result<(), Failure> {
        let Some(codec) = self.codec else {
            return Ok(());
        };
        for place in self.changed.drain(..) {
            let Some((key, held)) = self.states.get_index(place) else {
                continue;
            };
            changes
                .put(
                    shard(key.stable_hash()),
                    place as u64,
                    |out| key.save(out),
                    |out| (codec.save)(&held.state, out).map(|()| MESSAGE_PACK),
                )
                .map_err(|cause| Failure {
                    key: Some(crate::error::shorten(&format!("{key:?}"))),
                    ..Failure::new(step, cause)
                })?;
        }
        // 0 is for states that were never touched.
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        Ok(())
    }

    /// Takes up what was saved.
    pub(crate) fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let codec: Codec<S> = from.codecs().get().map_err(|cause| from.unsaved(cause))?;
        self.codec = Some(codec);
        self.epoch = 1;
        let keys = from.keys()?;
        self.states.reserve(keys.len());
        for saved in keys {
            let key = K::load(&mut &saved.key[..]).ok_or_else(|| {
                from.unreadable(&saved, "the step's keys are of another type now")
            })?;
            let state = match saved.tag {
                MESSAGE_PACK => (codec.load)(&saved.state),
                tag => Err(
                    format!("it is written in a way ({tag}) that this step does not read").into(),
                ),
            };
            let state = state.map_err(|cause| from.unreadable(&saved, cause))?;
            let held = Held { state, touched: 0 };
            let (place, _) = self.states.insert_full(key, held);
            // Keys that came from other workers have other places: all are saved anew.
            if from.moved() {
                self.states[place].touched = self.epoch;
                self.changed.push(place);
            }
        }
        Ok(())
    }
}
