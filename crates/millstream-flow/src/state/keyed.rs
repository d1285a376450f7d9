//! The states of all keys of one worker, their agenda, and how far event time has come for them.

use std::hash::Hash;

use super::agenda::Agenda;
use super::table::{Slot, Table};
use super::{KeyLogic, Moment, Outputs};
use crate::checkpoint::{BoxedCodec, Changes, Restore, StateCodec};
use crate::error::{Cause, Failure, FlowError};
use crate::key::Key;
use crate::time::{BEFORE_ALL, NEVER, Timed};

/// So often in a row there are few keys in much memory before that is given back: windows that end all at once leave none
/// for a moment, and the next ones need the same again.
const SPARSE_MAX: u32 = 16;

/// A state, and for what moment the agenda has its key; never after what the key waits for.
struct Armed<S> {
    state: S,
    at: Moment,
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
    table: Table<K, Armed<L::State>>,
    event: Agenda,
    processing: Agenda,
    watermark: i64,
    /// How often in a row the table was seen with few keys in much memory.
    sparse: u32,
    ending: Option<Vec<u32>>,
}

impl<K: Eq + Hash + Clone, L: KeyLogic<K>> Keyed<K, L> {
    /// No keys yet.
    pub fn new(logic: L) -> Self {
        Keyed {
            logic,
            table: Table::default(),
            event: Agenda::default(),
            processing: Agenda::default(),
            watermark: BEFORE_ALL,
            sparse: 0,
            ending: None,
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        let hash = self.table.hash(&key);
        let mut found = self.table.find(hash, &key);
        if let Some(slot) = found
            && self.is_due(slot, at)
        {
            if let Err((_, error)) = self.due(slot, at, out) {
                let unseen = Some(item);
                return Err(Fault { key, error, unseen });
            }
            found = self.table.find(hash, &key);
        }
        let slot = match found {
            Some(slot) => slot,
            None => match self.logic.open(&key) {
                Ok(state) => {
                    let at = Moment::NEVER;
                    self.table.insert(hash, key, Armed { state, at })
                }
                Err(error) => {
                    let unseen = None;
                    return Err(Fault { key, error, unseen });
                }
            },
        };
        let Some(held) = self.table.get_mut(slot) else {
            return Ok(());
        };
        let outcome = self
            .logic
            .on_item(&held.key, &mut held.state.state, item, at, out)
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
                self.due(slot, until, out)?;
            }
        }
        while let Some((at, slot)) = self.processing.pop_due(until.processing) {
            if self.armed(slot).processing == at {
                self.due(slot, until, out)?;
            }
        }
        self.sparse = match self.table.is_sparse() && self.ending.is_none() {
            true => self.sparse + 1,
            false => 0,
        };
        if self.sparse == SPARSE_MAX {
            self.compact();
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
            let mut ending = self.table.in_order();
            ending.reverse();
            self.ending = Some(ending);
        }
        while let Some(slot) = self.ending.as_mut().and_then(Vec::pop) {
            let Some(held) = self.table.get_mut(slot) else {
                continue;
            };
            let state = &mut held.state.state;
            if let Err(error) = self.logic.on_end(&held.key, state, at, out) {
                let key = held.key.clone();
                // What is left behind a failure has its turn in the next call.
                if !self.logic.is_empty(state) {
                    self.ending.get_or_insert_default().push(slot);
                }
                return Err((key, error));
            }
        }
        Ok(())
    }

    /// There is no more input in this run: where what a key gives at the end is given once, it is given now, and
    /// the key keeps nothing. May be called again behind a failure.
    ///
    /// # Errors
    /// What the logic says, with the key.
    pub fn settle_all(
        &mut self,
        now: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        if !self.logic.gives_once() {
            return Ok(());
        }
        let at = Moment {
            event: self.watermark,
            processing: now,
        };
        for slot in self.table.in_order() {
            let Some(held) = self.table.get_mut(slot) else {
                continue;
            };
            let outcome = self
                .logic
                .on_end(&held.key, &mut held.state.state, at, out)
                .map_err(|error| (held.key.clone(), error));
            self.settle(slot);
            outcome?;
        }
        Ok(())
    }

    fn armed(&self, slot: u32) -> Moment {
        let held = self.table.get(slot);
        held.map_or(Moment::NEVER, |held| held.state.at)
    }

    fn is_due(&self, slot: u32, at: Moment) -> bool {
        let armed = self.armed(slot);
        armed.event <= at.event || armed.processing <= at.processing
    }

    /// Gives a key its turn: something for which it waits has come.
    fn due(
        &mut self,
        slot: u32,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        let Some(held) = self.table.get_mut(slot) else {
            return Ok(());
        };
        let Armed { state, at } = &mut held.state;
        let outcome = self
            .logic
            .on_due(&held.key, state, until, out)
            .map_err(|error| (held.key.clone(), error));
        // What is still waited for is put on the agenda anew.
        if at.event <= until.event {
            at.event = NEVER;
        }
        if at.processing <= until.processing {
            at.processing = NEVER;
        }
        self.settle(slot);
        outcome
    }

    /// Notes that a key has changed, or forgets it if it has nothing to keep.
    fn settle(&mut self, slot: u32) {
        let Some(held) = self.table.get(slot) else {
            return;
        };
        let Armed { state, at } = &held.state;
        if self.logic.is_empty(state) {
            self.table.remove(slot);
            return;
        }
        let next = self.logic.next(state);
        let sooner = next.event < at.event || next.processing < at.processing;
        self.table.touch(slot);
        if sooner {
            self.arm(slot);
        }
    }

    /// Puts a key on the agenda for what it waits for.
    fn arm(&mut self, slot: u32) {
        let Some(held) = self.table.get_mut(slot) else {
            return;
        };
        let Armed { state, at } = &mut held.state;
        let next = self.logic.next(state);
        let sooner = (next.event < at.event, next.processing < at.processing);
        at.event = at.event.min(next.event);
        at.processing = at.processing.min(next.processing);
        let table = &self.table;
        let armed = |slot| table.get(slot).map(|held: &Slot<_, _>| held.state.at);
        if sooner.0 {
            self.event.add(next.event, slot);
            let holds = |at, slot| armed(slot).is_some_and(|armed| armed.event == at);
            self.event.tidy(table.len(), holds);
        }
        if sooner.1 {
            self.processing.add(next.processing, slot);
            let holds = |at, slot| armed(slot).is_some_and(|armed| armed.processing == at);
            self.processing.tidy(table.len(), holds);
        }
    }

    /// Makes the agenda anew: the slots of the keys have other numbers.
    fn rearm(&mut self) {
        self.event = Agenda::default();
        self.processing = Agenda::default();
        let slots: Vec<u32> = self.table.slots().collect();
        for slot in slots {
            if let Some(held) = self.table.get_mut(slot) {
                held.state.at = Moment::NEVER;
            }
            self.arm(slot);
        }
    }

    /// Gives back the memory of keys that have gone.
    fn compact(&mut self) {
        self.sparse = 0;
        self.table.compact();
        self.rearm();
    }
}

/// Writes what is kept of a key; what it waits for is known from that.
struct ArmedCodec<S>(BoxedCodec<S>);

impl<S> StateCodec<Armed<S>> for ArmedCodec<S> {
    fn save(&self, held: &Armed<S>, out: &mut Vec<u8>) -> Result<(), Cause> {
        self.0.save(&held.state, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Armed<S>, Cause> {
        let state = self.0.load(from)?;
        let at = Moment::NEVER;
        Ok(Armed { state, at })
    }
}

impl<K: Key, L: KeyLogic<K>> Keyed<K, L> {
    /// Writes the keys that have changed since the last epoch, and how far time has come.
    ///
    /// # Errors
    /// A state that cannot be saved, with its key.
    pub fn save(&mut self, step: &str, changes: &mut Changes) -> Result<(), Failure> {
        changes.come_to(self.watermark);
        self.table.save(step, changes)
    }

    /// Takes up what was saved, in a run with recovery; from now on changes are noted.
    ///
    /// # Errors
    /// States of a type that cannot be saved, or that cannot be read.
    pub fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let codec = self.logic.codec(from.codecs());
        let codec = codec.map_err(|cause| from.unsaved(cause))?;
        self.table.restore(Box::new(ArmedCodec(codec)), from)?;
        self.watermark = from.watermark();
        self.rearm();
        Ok(())
    }
}
