//! The table of a step's keys and states on one worker: finds them by key or slot, and records which have
//! changed since the last epoch.
//!
//! Invariant: if the keys that [`Table::save`] writes and removes are applied to the state saved before, the
//! result is the contents of the table.

use hashbrown::HashTable;

use crate::checkpoint::{BoxedCodec, Changes, Restore};
use crate::error::{Cause, Failure, FlowError, shorten};
use crate::key::{Key, Place};
use crate::saved::changes::{ADDED, check_size};
use crate::saved::codec::MESSAGE_PACK;
use crate::step::StateSize;

/// The size in bytes from which a state is saved by what was added to it: a smaller one is written as fast, and is read
/// in one piece.
const ADDED_FROM: u32 = 4 << 10;
/// Tables with fewer slots than this do not shrink.
const SLOTS_MIN: usize = 1024;

/// A key with its state.
pub(super) struct Slot<K, S> {
    pub(super) key: K,
    pub(super) state: S,
    /// The number of keys created before it: the order of output at the end.
    born: u64,
    /// The epoch in which it was last touched; 0 if it was not.
    touched: u32,
    /// The bytes of its entry in the state journal, key and state; 0 if there is none.
    saved_bytes: u32,
}

impl<K, S> Slot<K, S> {
    fn new(key: K, state: S, born: u64) -> Self {
        Slot {
            key,
            state,
            born,
            touched: 0,
            saved_bytes: 0,
        }
    }

    /// Returns its place among keys, by their creation: the lower half of the number, which is enough to order two keys
    /// unless four thousand million were created between them.
    pub(super) fn rank(&self) -> u32 {
        self.born as u32
    }
}

/// The data needed to save a table.
struct Saving<K, S> {
    codec: BoxedCodec<S>,
    /// Counts epochs from 1.
    epoch: u32,
    /// The slots that were touched in this epoch.
    changed: Vec<u32>,
    /// Saved keys that were removed in this epoch, with their creation numbers.
    removed: Vec<(K, u64)>,
    /// The bytes of all saved keys and states.
    bytes: u64,
}

/// The hash of a key in a table: the one that has chosen its worker, so that keys which an attacker has chosen for
/// another hash are as good as others. Its low bits are similar on one worker, and are the last that a table looks at
/// here.
#[inline]
fn hash_of<K: Key>(key: &K) -> u64 {
    in_table(key.stable_hash())
}

/// The hash in a table of a key with this hash; its own inverse.
#[inline]
fn in_table(hash: u64) -> u64 {
    hash.rotate_left(32)
}

/// The states of a step on one worker.
pub(super) struct Table<K, S> {
    index: HashTable<u32>,
    slots: Vec<Option<Slot<K, S>>>,
    free: Vec<u32>,
    born: u64,
    /// `None` in a run without recovery.
    saving: Option<Saving<K, S>>,
    /// The worker to which the keys belong, from the first batch on.
    own: Option<Place>,
    /// The first new key whose hash is not stable, and what is wrong.
    unstable: Option<(K, String)>,
}

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Table {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            born: 0,
            saving: None,
            own: None,
            unstable: None,
        }
    }
}

impl<K: Key, S> Table<K, S> {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of keys, and the bytes of those that are saved.
    pub(super) fn size(&self) -> StateSize {
        StateSize {
            keys: self.len() as u64,
            bytes: self.saving.as_ref().map(|saving| saving.bytes),
            waits_for_time: false,
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &K) -> u64 {
        hash_of(key)
    }

    /// Returns the slot of a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let slots = &self.slots;
        let same = |slot: &u32| {
            slots[*slot as usize]
                .as_ref()
                .is_some_and(|held| held.key == *key)
        };
        self.index.find(hash, same).copied()
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Slot<K, S>> {
        self.slots.get(slot as usize).and_then(Option::as_ref)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Slot<K, S>> {
        self.slots.get_mut(slot as usize).and_then(Option::as_mut)
    }

    /// Says to which worker new keys must belong.
    #[inline]
    pub(super) fn belongs_to(&mut self, own: Place) {
        self.own = Some(own);
    }

    /// Fails if a new key had a hash that is not stable: its items would be divided among several states.
    #[inline]
    pub(super) fn check_hashes(&mut self, step: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.unstable.take() {
            None => Ok(()),
            Some((key, fault)) => Err(Failure {
                key: Some(shorten(&format!("{key:?}"))),
                ..Failure::new(step(), fault)
            }),
        }
    }

    /// Notes a new key whose hash is not stable.
    fn check_new(&mut self, hash: u64, key: &K) {
        if self.unstable.is_none()
            && let Some(own) = self.own
            && let Some(fault) = own.fault(key, in_table(hash))
        {
            self.unstable = Some((key.clone(), fault));
        }
    }

    /// Returns the state of a key, which will be changed; `init` creates it if it does not exist.
    #[inline]
    pub(super) fn entry(&mut self, key: &K, init: impl FnOnce(&K) -> S) -> &mut S
    where
        K: Clone,
    {
        let hash = self.hash(key);
        let slot = self.find(hash, key).unwrap_or_else(|| {
            self.check_new(hash, key);
            let slot = self.vacant();
            self.enter(hash, slot);
            slot
        });
        let born = &mut self.born;
        let held = self.slots[slot as usize].get_or_insert_with(|| {
            *born += 1;
            Slot::new(key.clone(), init(key), *born - 1)
        });
        if let Some(saving) = &mut self.saving
            && held.touched != saving.epoch
        {
            held.touched = saving.epoch;
            saving.changed.push(slot);
        }
        &mut held.state
    }

    /// Creates a slot for a new key.
    pub(super) fn insert(&mut self, hash: u64, key: K, state: S) -> u32 {
        self.check_new(hash, &key);
        let born = self.born;
        self.born += 1;
        self.place(hash, Slot::new(key, state, born))
    }

    fn place(&mut self, hash: u64, held: Slot<K, S>) -> u32 {
        let slot = self.vacant();
        self.slots[slot as usize] = Some(held);
        self.enter(hash, slot);
        slot
    }

    /// Returns a slot without a key.
    fn vacant(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        })
    }

    /// Adds a slot to the index of keys.
    fn enter(&mut self, hash: u64, slot: u32) {
        let slots = &self.slots;
        let again = |slot: &u32| {
            let held = slots[*slot as usize].as_ref();
            held.map_or(0, |held| hash_of(&held.key))
        };
        self.index.insert_unique(hash, slot, again);
    }

    /// Records that the state of a slot has changed or will be changed.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32) {
        if let Some(saving) = &mut self.saving
            && let Some(Some(held)) = self.slots.get_mut(slot as usize)
            && held.touched != saving.epoch
        {
            held.touched = saving.epoch;
            saving.changed.push(slot);
        }
    }

    /// Removes a key.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(held) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let hash = hash_of(&held.key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.free.push(slot);
        if let Some(saving) = &mut self.saving
            && held.saved_bytes > 0
        {
            saving.bytes -= u64::from(held.saved_bytes);
            saving.removed.push((held.key, held.born));
        }
    }

    /// Returns all slots, in the order in which their keys were created.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<(u64, u32)> = (0u32..)
            .zip(&self.slots)
            .filter_map(|(slot, held)| Some((held.as_ref()?.born, slot)))
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Iterates over the occupied slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let slots = (0u32..).zip(&self.slots);
        slots.filter_map(|(slot, held)| held.as_ref().map(|_| slot))
    }

    /// True if most of the memory belongs to removed keys.
    pub(super) fn is_sparse(&self) -> bool {
        self.slots.len() > SLOTS_MIN && self.index.len() < self.slots.len() / 4
    }

    /// Releases memory. This renumbers the slots.
    pub(super) fn compact(&mut self) {
        let order: Vec<u32> = self.slots().collect();
        let mut slots = Vec::with_capacity(order.len());
        for slot in order {
            slots.push(self.slots[slot as usize].take());
        }
        self.slots = slots;
        self.free = Vec::new();
        self.index = HashTable::with_capacity(self.slots.len());
        for slot in 0..self.slots.len() as u32 {
            if let Some(hash) = self.get(slot).map(|held| hash_of(&held.key)) {
                self.enter(hash, slot);
            }
        }
        if let Some(saving) = &mut self.saving {
            let epoch = saving.epoch;
            let held = (0u32..).zip(&self.slots);
            let changed =
                held.filter(|(_, held)| held.as_ref().is_some_and(|h| h.touched == epoch));
            saving.changed = changed.map(|(slot, _)| slot).collect();
        }
    }
}

impl<K: Key, S> Table<K, S> {
    /// Writes the changes since the last epoch, and begins the next epoch.
    pub(super) fn save(&mut self, step: &str, changes: &mut Changes) -> Result<(), Failure> {
        let Some(mut saving) = self.saving.take() else {
            return Ok(());
        };
        changes.set_layout(&*saving.codec);
        let written = self.write(&mut saving, changes);
        // 0 is for states that were never touched.
        saving.epoch = saving.epoch.checked_add(1).unwrap_or(1);
        self.saving = Some(saving);
        written.map_err(|(key, cause)| Failure {
            key: Some(shorten(&key)),
            ..Failure::new(step, cause)
        })
    }

    /// Writes the changes; a failure has the key as text.
    fn write(
        &mut self,
        saving: &mut Saving<K, S>,
        changes: &mut Changes,
    ) -> Result<(), (String, Cause)> {
        for (key, born) in saving.removed.drain(..) {
            // A key that was created again in the same epoch is among the changed ones. An equal key of another type
            // (`True` and 1 in Python) is saved as other bytes.
            let again = self.find(self.hash(&key), &key);
            let again = again.and_then(|slot| self.get(slot));
            if again.is_none_or(|again| saved(&again.key) != saved(&key)) {
                let gone = |_: &mut Vec<u8>| Ok(crate::checkpoint::REMOVED);
                put(changes, &key, born, gone)?;
            }
        }
        for slot in saving.changed.drain(..) {
            // The slot of a removed key may contain another key, which has an entry of its own.
            let Some(Some(held)) = self.slots.get_mut(slot as usize) else {
                continue;
            };
            if held.touched != saving.epoch {
                continue;
            }
            let codec = &saving.codec;
            let mut before = 0;
            let bytes = put(changes, &held.key, held.born, |out| {
                let start = out.len();
                if held.saved_bytes >= ADDED_FROM && codec.save_added(&held.state, out)? {
                    // With what it had before and has no longer, it may be too long: then the state alone counts.
                    let all = held.saved_bytes as usize + out.len() - start;
                    if check_size(all).is_ok() {
                        before = held.saved_bytes as usize;
                        return Ok(ADDED);
                    }
                }
                out.truncate(start);
                codec.save(&held.state, out).map(|()| MESSAGE_PACK)
            })?;
            held.touched = 0;
            let bytes = u32::try_from(before + bytes).unwrap_or(u32::MAX).max(1);
            saving.bytes += u64::from(bytes);
            saving.bytes -= u64::from(held.saved_bytes);
            held.saved_bytes = bytes;
        }
        Ok(())
    }

    /// Restores the saved keys.
    pub(super) fn restore(
        &mut self,
        codec: BoxedCodec<S>,
        from: &Restore<'_>,
    ) -> Result<(), FlowError> {
        let keys = from.keys()?;
        self.slots.reserve(keys.len());
        let mut bytes = 0;
        let slots = &self.slots;
        self.index.reserve(keys.len(), |slot| {
            let held = slots[*slot as usize].as_ref();
            held.map_or(0, |held| hash_of(&held.key))
        });
        for saved in keys {
            let key = K::load(&mut &saved.key[..]).ok_or_else(|| {
                from.unreadable(&saved, "the step's keys are of another type now")
            })?;
            from.check_hash(&key, &saved)?;
            let mut rest = &saved.state[..];
            let mut load = || {
                if saved.tag != MESSAGE_PACK {
                    let tag = saved.tag;
                    let wrong = format!("its encoding ({tag}) is not one that this step reads");
                    return Err(wrong.into());
                }
                let mut state = codec.load(&mut rest)?;
                while !rest.is_empty() {
                    codec.load_added(&mut state, &mut rest)?;
                }
                Ok(state)
            };
            let state = load().map_err(|cause: Cause| from.unreadable(&saved, cause))?;
            // Keys from different workers may have the same number; their order is that of their slots.
            self.born = self.born.max(saved.born + 1);
            let length = saved.key.len() + saved.state.len();
            let saved_bytes = u32::try_from(length).unwrap_or(u32::MAX).max(1);
            bytes += u64::from(saved_bytes);
            let held = Slot {
                saved_bytes,
                ..Slot::new(key, state, saved.born)
            };
            self.place(self.hash(&held.key), held);
        }
        self.saving = Some(Saving {
            codec,
            epoch: 1,
            changed: Vec::new(),
            removed: Vec::new(),
            bytes,
        });
        Ok(())
    }
}

/// The key as it is saved.
fn saved<K: Key>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.save(&mut bytes);
    bytes
}

/// Writes one key; returns the bytes of key and state.
fn put<K: Key>(
    changes: &mut Changes,
    key: &K,
    born: u64,
    state: impl FnOnce(&mut Vec<u8>) -> Result<u8, Cause>,
) -> Result<usize, (String, Cause)> {
    let mut key_bytes = 0;
    let mut state_bytes = 0;
    let write_key = |out: &mut Vec<u8>| {
        let before = out.len();
        key.save(out);
        key_bytes = out.len() - before;
    };
    let write_state = |out: &mut Vec<u8>| {
        let before = out.len();
        let tag = state(out);
        state_bytes = out.len() - before;
        tag
    };
    let shard = changes.shards().of(key.stable_hash());
    let done = changes.put(shard, born, write_key, write_state);
    match (done, key_bytes > 0) {
        (Ok(()), true) => Ok(key_bytes + state_bytes),
        (Ok(()), false) => Err((format!("{key:?}"), "such a key cannot be saved".into())),
        (Err(cause), _) => Err((format!("{key:?}"), cause)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::{Hash, Hasher};

    use super::*;

    thread_local! {
        /// The number of comparisons of keys.
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// An integer whose comparisons are counted, with a hash like that of Python's interpreter.
    #[derive(Clone, Debug)]
    struct Number(i128);

    impl PartialEq for Number {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }
    impl Eq for Number {}
    impl Hash for Number {
        fn hash<H: Hasher>(&self, state: &mut H) {
            (self.0 % ((1 << 61) - 1)).hash(state);
        }
    }
    impl Key for Number {
        fn stable_hash(&self) -> u64 {
            self.0.stable_hash()
        }
        fn save(&self, out: &mut Vec<u8>) {
            self.0.save(out);
        }
        fn load(bytes: &mut &[u8]) -> Option<Self> {
            i128::load(bytes).map(Number)
        }
    }

    /// The comparisons of a table to which keys are added, of which it is then asked.
    fn comparisons(keys: &[Number]) -> usize {
        COMPARED.set(0);
        let mut table = Table::default();
        for key in keys {
            *table.entry(key, |_| 0) += 1;
        }
        for key in keys {
            *table.entry(key, |_| 0) += 1;
        }
        assert_eq!(table.len(), keys.len());
        COMPARED.get()
    }

    #[test]
    fn keys_with_one_hash_in_the_interpreter_take_as_many_comparisons_as_others() {
        const KEYS: i128 = 100_000;
        for step in [1, (1 << 61) - 1] {
            let keys: Vec<_> = (1..=KEYS).map(|number| Number(number * step)).collect();
            // Each key is found once, and others have its tag by accident.
            let compared = comparisons(&keys);
            assert!(compared < 3 * keys.len() / 2, "{compared} comparisons");
        }
    }

    #[test]
    fn keys_of_one_worker_of_many_take_as_many_comparisons_as_others() {
        let of_first = |key: &Number| key.0.stable_hash() & 255 == 0;
        let keys: Vec<_> = (0..2_000_000).map(Number).filter(of_first).collect();
        let compared = comparisons(&keys);
        assert!(compared < 3 * keys.len() / 2, "{compared} comparisons");
    }
}
