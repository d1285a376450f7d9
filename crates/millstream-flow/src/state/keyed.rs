//! The states of all keys of one worker, with their agenda and their event time.

use std::collections::VecDeque;

use super::agenda::Agenda;
use super::table::{Slot, Table};
use super::{KeyLogic, Moment, Outputs};
use crate::checkpoint::{BoxedCodec, Changes, Restore, StateCodec};
use crate::error::{Cause, Failure, FlowError};
use crate::key::{Key, Place};
use crate::step::StateSize;
use crate::time::{BEFORE_ALL, NEVER, Timed};

/// The number of consecutive checks at which a table must be sparse before its memory is released: after
/// windows that end all at once few keys remain for a moment, and the next windows need the same memory again.
const SPARSE_MAX: u32 = 16;

/// A state, and the moment at which the agenda has its key, which is never after the key's next timer.
struct Scheduled<S> {
    state: S,
    at: Moment,
}

/// An error of a logic, with its key.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Fault<K, E, I> {
    /// The key.
    pub key: K,
    /// The error of the logic.
    pub error: E,
    /// The item, if it was not processed: a timer that fired before it failed.
    pub unseen: Option<Timed<I>>,
}

/// An item that its key has refused, and the error.
pub type Refusal<K, L> = (K, <L as KeyLogic<K>>::In, <L as KeyLogic<K>>::Error);

/// The keys of a step on one worker.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Keyed<K, L: KeyLogic<K>> {
    /// The logic of each key.
    pub logic: L,
    table: Table<K, Scheduled<L::State>>,
    event: Agenda,
    processing: Agenda,
    watermark: i64,
    /// The number of consecutive checks at which the table was sparse.
    sparse: u32,
    ending: Option<Vec<u32>>,
    refused: VecDeque<Refusal<K, L>>,
}

impl<K: Key, L: KeyLogic<K>> Keyed<K, L> {
    /// Creates an empty set of keys.
    pub fn new(logic: L) -> Self {
        Keyed {
            logic,
            table: Table::default(),
            event: Agenda::default(),
            processing: Agenda::default(),
            watermark: BEFORE_ALL,
            sparse: 0,
            ending: None,
            refused: VecDeque::new(),
        }
    }

    /// Says to which worker new keys must belong.
    pub(crate) fn belongs_to(&mut self, own: Place) {
        self.table.belongs_to(own);
    }

    /// Fails if a new key had a hash that is not stable.
    pub(crate) fn check_hashes(&mut self, step: &str) -> Result<(), Failure> {
        self.table.check_hashes(|| step.to_owned())
    }

    /// Takes the next item that was refused in the calls so far.
    pub fn take_refused(&mut self) -> Option<Refusal<K, L>> {
        self.refused.pop_front()
    }

    /// Collects the items that the logic has refused in a call for the key in this slot.
    fn collect_refused(&mut self, slot: u32) {
        while let Some((item, error)) = self.logic.take_refused() {
            if let Some(held) = self.table.get(slot) {
                self.refused.push_back((held.key.clone(), item, error));
            }
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of keys, the bytes of those that are saved, and whether one waits for event time.
    #[must_use]
    pub fn size(&self) -> StateSize {
        StateSize {
            waits_for_time: self.event.next().is_some(),
            ..self.table.size()
        }
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the next moment in processing time for which a key has a timer; it may be out of date.
    #[must_use]
    pub fn next_processing(&self) -> Option<i64> {
        self.processing.next()
    }

    /// Passes an item to its key. `floor` is the event time of all other partitions.
    ///
    /// # Errors
    /// The error of the logic. An item that it returns may be passed again.
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
            if let Err((_, error)) = self.fire(slot, at, out) {
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
                    self.table.insert(hash, key, Scheduled { state, at })
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
        self.collect_refused(slot);
        self.record_change(slot);
        outcome
    }

    /// Returns how many of the next items of a key, one or more, may be passed as one item with the watermark of the
    /// first: before each of the others nothing of the key is due. `floor` is the event time of all other partitions,
    /// `life` the event time after which the logic removes a key without items.
    #[must_use]
    pub fn undivided(&self, key: &K, items: &[Timed<()>], floor: i64, life: Option<i64>) -> usize {
        let reached = |item: &Timed<()>| item.watermark.min(floor).max(self.watermark);
        let Some(first) = items.first() else { return 0 };
        let slot = self.table.find(self.table.hash(key), key);
        let due = slot.map_or(NEVER, |slot| self.scheduled(slot).event);
        let begun = reached(first);
        let mut latest = first.time;
        for (count, item) in items.iter().enumerate().skip(1) {
            let at = reached(item);
            // What is due at the first item comes before it.
            let has_due = at >= due && at > begun;
            let has_ended = life.is_some_and(|life| at >= latest.saturating_add(life));
            if has_due || has_ended {
                return count;
            }
            latest = latest.max(item.time);
        }
        items.len()
    }

    /// Advances event time to `watermark` and processing time to `now`: fires the timers up to these times, in
    /// the order of their moments. May be called again after a failure.
    ///
    /// # Errors
    /// The error of the logic, with the key.
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
            if self.scheduled(slot).event == at {
                self.fire(slot, until, out)?;
            }
        }
        while let Some((at, slot)) = self.processing.pop_due(until.processing) {
            if self.scheduled(slot).processing == at {
                self.fire(slot, until, out)?;
            }
        }
        self.sparse = if self.table.is_sparse() && self.ending.is_none() {
            self.sparse + 1
        } else {
            0
        };
        if self.sparse == SPARSE_MAX {
            self.compact();
        }
        Ok(())
    }

    /// Ends every key after all input, in the order of their first items. May be called again after a failure.
    ///
    /// # Errors
    /// The error of the logic, with the key.
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
            let ended = self.logic.on_end(&held.key, state, at, out);
            let left = ended.is_err() && !self.logic.is_empty(state);
            let ended = ended.map_err(|error| (held.key.clone(), error));
            // The output that remains after a failure is emitted in the next call.
            if left {
                self.ending.get_or_insert_default().push(slot);
            }
            self.collect_refused(slot);
            ended?;
        }
        Ok(())
    }

    /// Emits the output at the end of the input of this run, for logic whose output at the end is emitted once,
    /// and removes the keys. May be called again after a failure.
    ///
    /// # Errors
    /// The error of the logic, with the key.
    pub fn drain(
        &mut self,
        now: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        if !self.logic.ends_once() {
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
            self.collect_refused(slot);
            self.record_change(slot);
            outcome?;
        }
        Ok(())
    }

    fn scheduled(&self, slot: u32) -> Moment {
        let held = self.table.get(slot);
        held.map_or(Moment::NEVER, |held| held.state.at)
    }

    fn is_due(&self, slot: u32, at: Moment) -> bool {
        let scheduled = self.scheduled(slot);
        scheduled.event <= at.event || scheduled.processing <= at.processing
    }

    /// Fires the timers of a key up to `until`.
    fn fire(
        &mut self,
        slot: u32,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), (K, L::Error)> {
        let Some(held) = self.table.get_mut(slot) else {
            return Ok(());
        };
        let Scheduled { state, at } = &mut held.state;
        let outcome = self
            .logic
            .on_due(&held.key, state, until, out)
            .map_err(|error| (held.key.clone(), error));
        // Timers that remain are added to the agenda again.
        if at.event <= until.event {
            at.event = NEVER;
        }
        if at.processing <= until.processing {
            at.processing = NEVER;
        }
        self.collect_refused(slot);
        self.record_change(slot);
        outcome
    }

    /// Records that a key has changed; removes it if its state is empty.
    fn record_change(&mut self, slot: u32) {
        let Some(held) = self.table.get(slot) else {
            return;
        };
        let Scheduled { state, at } = &held.state;
        if self.logic.is_empty(state) {
            self.table.remove(slot);
            return;
        }
        let next = self.logic.next(state);
        let sooner = next.event < at.event || next.processing < at.processing;
        self.table.touch(slot);
        if sooner {
            self.schedule(slot);
        }
    }

    /// Adds a key to the agenda for its next timer.
    fn schedule(&mut self, slot: u32) {
        let Some(held) = self.table.get_mut(slot) else {
            return;
        };
        let rank = held.rank();
        let Scheduled { state, at } = &mut held.state;
        let next = self.logic.next(state);
        let sooner = (next.event < at.event, next.processing < at.processing);
        at.event = at.event.min(next.event);
        at.processing = at.processing.min(next.processing);
        let table = &self.table;
        let scheduled = |slot| table.get(slot).map(|held: &Slot<_, _>| held.state.at);
        if sooner.0 {
            self.event.add(next.event, rank, slot);
            let holds = |at, slot| scheduled(slot).is_some_and(|scheduled| scheduled.event == at);
            self.event.tidy(table.len(), holds);
        }
        if sooner.1 {
            self.processing.add(next.processing, rank, slot);
            let holds =
                |at, slot| scheduled(slot).is_some_and(|scheduled| scheduled.processing == at);
            self.processing.tidy(table.len(), holds);
        }
    }

    /// Rebuilds the agenda after the slots of the keys were renumbered.
    fn reschedule_all(&mut self) {
        self.event = Agenda::default();
        self.processing = Agenda::default();
        let slots: Vec<u32> = self.table.slots().collect();
        for slot in slots {
            if let Some(held) = self.table.get_mut(slot) {
                held.state.at = Moment::NEVER;
            }
            self.schedule(slot);
        }
    }

    /// Releases the memory of removed keys.
    fn compact(&mut self) {
        self.sparse = 0;
        self.table.compact();
        self.reschedule_all();
    }
}

/// Encodes the state of a key; its moment on the agenda follows from the state.
struct ScheduledCodec<S>(BoxedCodec<S>);

impl<S> StateCodec<Scheduled<S>> for ScheduledCodec<S> {
    fn save(&self, held: &Scheduled<S>, out: &mut Vec<u8>) -> Result<(), Cause> {
        self.0.save(&held.state, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Scheduled<S>, Cause> {
        let state = self.0.load(from)?;
        let at = Moment::NEVER;
        Ok(Scheduled { state, at })
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        self.0.layout(out);
    }
    fn save_added(&self, held: &Scheduled<S>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        self.0.save_added(&held.state, out)
    }
    fn load_added(&self, held: &mut Scheduled<S>, from: &mut &[u8]) -> Result<(), Cause> {
        self.0.load_added(&mut held.state, from)
    }
}

impl<K: Key, L: KeyLogic<K>> Keyed<K, L> {
    /// Writes the keys that have changed since the last epoch, and the event time.
    ///
    /// # Errors
    /// A state that cannot be saved, with its key.
    pub fn save(&mut self, step: &str, changes: &mut Changes) -> Result<(), Failure> {
        changes.set_watermark(self.watermark);
        self.table.save(step, changes)
    }

    /// Restores the saved state, in a run with recovery; from now on changes are recorded.
    ///
    /// # Errors
    /// States of a type that cannot be saved, or that cannot be read.
    pub fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        let codec = self.logic.codec(from.codecs());
        let codec = codec.map_err(|cause| from.unsaved(cause))?;
        self.table.restore(Box::new(ScheduledCodec(codec)), from)?;
        self.watermark = from.watermark();
        self.reschedule_all();
        Ok(())
    }
}
