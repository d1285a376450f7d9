//! The states of all keys of one worker, and their agenda.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::agenda::Agenda;
use super::{KeyLogic, Moment, Outputs};
use crate::time::{BEFORE_ALL, NEVER, Timed};

struct Slot<K, S> {
    key: K,
    state: S,
    /// The number of keys made before it: the order in which they are given at the end.
    born: u64,
    /// For what moment the agenda has this key; never after what the key waits for.
    armed: Moment,
}

/// What a logic said, and for which key.
pub struct Fault<K, E, I> {
    /// The key.
    pub key: K,
    /// What the logic said.
    pub error: E,
    /// The item, if it has not been seen yet: something failed for which the key had waited.
    pub unseen: Option<Timed<I>>,
}

/// The keys of a step on one worker.
pub struct Keyed<K, L: KeyLogic<K>> {
    /// What is done for each.
    pub logic: L,
    hasher: FixedState,
    index: HashTable<u32>,
    slots: Vec<Option<Slot<K, L::State>>>,
    free: Vec<u32>,
    born: u64,
    event: Agenda,
    processing: Agenda,
    watermark: i64,
    ending: Option<Vec<u32>>,
}

impl<K: Eq + Hash + Clone, L: KeyLogic<K>> Keyed<K, L> {
    /// No keys yet.
    pub fn new(logic: L) -> Self {
        Keyed {
            logic,
            hasher: FixedState::default(),
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            born: 0,
            event: Agenda::default(),
            processing: Agenda::default(),
            watermark: BEFORE_ALL,
            ending: None,
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The next moment in processing time that a key waits for; it may turn out to be out of date.
    #[must_use]
    pub fn next_processing(&self) -> Option<i64> {
        self.processing.next()
    }

    /// Hands an item to its key. `floor` is how far others than its partition let event time come.
    ///
    /// # Errors
    /// What the logic says. An item that it gives back may be handed in again.
    pub fn item(
        &mut self,
        key: K,
        item: Timed<L::In>,
        floor: i64,
        now: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), Fault<K, L::Error, L::In>> {
        let at = Moment {
            event: item.watermark.min(floor).max(self.watermark),
            processing: now,
        };
        let hash = self.hasher.hash_one(&key);
        let mut found = self.find(hash, &key);
        if let Some(slot) = found
            && let Some(held) = &self.slots[slot as usize]
            && (held.armed.event <= at.event || held.armed.processing <= at.processing)
        {
            if let Err(error) = self.due(slot, at, out) {
                let unseen = Some(item);
                return Err(Fault { key, error, unseen });
            }
            found = self.find(hash, &key);
        }
        let slot = match found {
            Some(slot) => slot,
            None => match self.logic.open(&key) {
                Ok(state) => self.insert(hash, key, state),
                Err(error) => {
                    let unseen = None;
                    return Err(Fault { key, error, unseen });
                }
            },
        };
        let Some(held) = &mut self.slots[slot as usize] else {
            return Ok(());
        };
        let outcome = self
            .logic
            .on_item(&held.key, &mut held.state, item, at, out)
            .map_err(|error| Fault {
                key: held.key.clone(),
                error,
                unseen: None,
            });
        self.settle(slot);
        outcome
    }

    /// Event time has come to `watermark` and processing time to `now`: the keys that waited for it
    /// have their turn, in the order of their moments. May be called again behind a failure.
    ///
    /// # Errors
    /// What the logic says, with the key.
    pub fn advance(
        &mut self,
        watermark: i64,
        now: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        self.watermark = self.watermark.max(watermark);
        let until = Moment {
            event: self.watermark,
            processing: now,
        };
        while let Some((at, slot)) = self.event.pop_due(until.event) {
            if self.armed(slot).event == at {
                self.turn(slot, until, out)?;
            }
        }
        while let Some((at, slot)) = self.processing.pop_due(until.processing) {
            if self.armed(slot).processing == at {
                self.turn(slot, until, out)?;
            }
        }
        Ok(())
    }

    /// All input has ended: every key has its last turn, in the order of their first items. May be
    /// called again behind a failure.
    ///
    /// # Errors
    /// What the logic says, with the key.
    pub fn end(
        &mut self,
        now: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        let at = Moment {
            event: self.watermark,
            processing: now,
        };
        if self.ending.is_none() {
            let mut ending: Vec<(u64, u32)> = (0u32..)
                .zip(&self.slots)
                .filter_map(|(slot, held)| Some((held.as_ref()?.born, slot)))
                .collect();
            ending.sort_unstable_by(|a, b| b.cmp(a));
            self.ending = Some(ending.into_iter().map(|(_, slot)| slot).collect());
        }
        while let Some(slot) = self.ending.as_mut().and_then(Vec::pop) {
            let Some(held) = &mut self.slots[slot as usize] else {
                continue;
            };
            if let Err(error) = self.logic.on_end(&held.key, &mut held.state, at, out) {
                let key = held.key.clone();
                // What is left behind a failure has its turn in the next call.
                if !self.logic.is_empty(&held.state) {
                    self.ending.get_or_insert_default().push(slot);
                }
                return Err((key, error));
            }
        }
        Ok(())
    }

    fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let slots = &self.slots;
        let same = |slot: &u32| {
            slots[*slot as usize]
                .as_ref()
                .is_some_and(|held| held.key == *key)
        };
        self.index.find(hash, same).copied()
    }

    fn insert(&mut self, hash: u64, key: K, state: L::State) -> u32 {
        let held = Slot {
            key,
            state,
            born: self.born,
            armed: Moment::NEVER,
        };
        self.born += 1;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(held);
                slot
            }
            None => {
                self.slots.push(Some(held));
                (self.slots.len() - 1) as u32
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let again = |slot: &u32| {
            let held = slots[*slot as usize].as_ref();
            held.map_or(0, |held| hasher.hash_one(&held.key))
        };
        self.index.insert_unique(hash, slot, again);
        slot
    }

    fn armed(&self, slot: u32) -> Moment {
        let held = self.slots.get(slot as usize).and_then(Option::as_ref);
        held.map_or(Moment::NEVER, |held| held.armed)
    }

    /// Gives a key its turn, in the name of the agenda.
    fn turn(
        &mut self,
        slot: u32,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        let key = self.slots[slot as usize].as_ref().map(|h| h.key.clone());
        match (self.due(slot, until, out), key) {
            (Err(error), Some(key)) => Err((key, error)),
            _ => Ok(()),
        }
    }

    fn due(
        &mut self,
        slot: u32,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        let Some(held) = &mut self.slots[slot as usize] else {
            return Ok(());
        };
        let outcome = self.logic.on_due(&held.key, &mut held.state, until, out);
        // What is still waited for is put on the agenda anew.
        if held.armed.event <= until.event {
            held.armed.event = NEVER;
        }
        if held.armed.processing <= until.processing {
            held.armed.processing = NEVER;
        }
        self.settle(slot);
        outcome
    }

    /// Forgets a key that has nothing to keep; puts another one on the agenda for what it waits for.
    fn settle(&mut self, slot: u32) {
        let Some(held) = &mut self.slots[slot as usize] else {
            return;
        };
        if self.logic.is_empty(&held.state) {
            let hash = self.hasher.hash_one(&held.key);
            if let Ok(entry) = self.index.find_entry(hash, |other| *other == slot) {
                entry.remove();
            }
            self.slots[slot as usize] = None;
            self.free.push(slot);
            return;
        }
        let next = self.logic.next(&held.state);
        let keys = self.index.len();
        if next.event < held.armed.event {
            held.armed.event = next.event;
            self.event.add(next.event, slot);
            let slots = &self.slots;
            self.event.tidy(keys, |at, slot| {
                let held = slots.get(slot as usize).and_then(Option::as_ref);
                held.is_some_and(|held| held.armed.event == at)
            });
        }
        if let Some(held) = &mut self.slots[slot as usize]
            && next.processing < held.armed.processing
        {
            held.armed.processing = next.processing;
            self.processing.add(next.processing, slot);
            let slots = &self.slots;
            self.processing.tidy(keys, |at, slot| {
                let held = slots.get(slot as usize).and_then(Option::as_ref);
                held.is_some_and(|held| held.armed.processing == at)
            });
        }
    }
}
