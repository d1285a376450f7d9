//! The ids of sets: within the queue's `dedupe` an item with the same id is not added a second time, also when the
//! first one has left.
//!
//! An id is in the record that adds its item, so that the log has both or none. When the older records of a log are
//! pruned, the ids in them are written again. The time of an id is that of its item, and is measured on the steady
//! clock, so that a change of the wall clock ends none; over a restart it is measured on the wall clock.
//!
//! The invariant: the record at the position of an id has it, and an id is forgotten only when its time is over.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_128;

use crate::moment::Moment;

/// What a queue keeps of an id.
pub(crate) type IdKey = [u8; 16];

/// About the length of a record with an id.
pub(super) const RECORD_BYTES: u64 = 64;

/// The key of a client's id.
pub(crate) fn key_of(id: &[u8]) -> IdKey {
    xxh3_128(id).to_le_bytes()
}

#[derive(Debug, Default)]
pub(super) struct Ids {
    known: HashMap<IdKey, KnownId, foldhash::fast::RandomState>,
    by_position: BTreeMap<u64, IdKey>,
    /// The oldest first.
    by_time: VecDeque<IdKey>,
}

#[derive(Clone, Copy, Debug)]
struct KnownId {
    /// The position of its last record.
    position: u64,
    /// The time of the set, wall clock in milliseconds.
    set_ms: u64,
    /// The same on the steady clock, in microseconds: before its origin, if that was reset since.
    since_us: i64,
}

impl Ids {
    /// The ids in the records of a log: position and time of the set.
    pub(super) fn restored(
        found: impl IntoIterator<Item = (IdKey, (u64, u64))>,
        now: Moment,
    ) -> Self {
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by_key(|&(_, (position, set_ms))| (set_ms, position));
        let mut ids = Ids::default();
        for (key, (position, set_ms)) in found {
            ids.insert(key, position, set_ms, now);
        }
        ids
    }

    /// An item with this id was set at `set_ms`, in the record at `position`.
    pub(super) fn insert(&mut self, key: IdKey, position: u64, set_ms: u64, now: Moment) {
        let age_ms = now
            .wall_ms
            .saturating_sub(set_ms)
            .min(i64::MAX as u64 / 1_000);
        let known = KnownId {
            position,
            set_ms,
            since_us: (now.steady_us as i64).saturating_sub(age_ms as i64 * 1_000),
        };
        if let Some(former) = self.known.insert(key, known) {
            self.by_position.remove(&former.position);
            self.by_time.retain(|other| *other != key);
        }
        self.by_position.insert(position, key);
        self.by_time.push_back(key);
    }

    /// Forgets the ids whose time is over.
    pub(super) fn expire(&mut self, now_us: u64, window: Option<Duration>) {
        while let Some(key) = self.by_time.front() {
            let Some(known) = self.known.get(key) else {
                self.by_time.pop_front();
                continue;
            };
            if window.is_some_and(|window| until_us(known, window) > now_us) {
                return;
            }
            self.by_position.remove(&known.position);
            self.known.remove(key);
            self.by_time.pop_front();
        }
    }

    /// The first position that is needed for an id.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.by_position
            .first_key_value()
            .map(|(&position, _)| position)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn contains(&self, key: &IdKey) -> bool {
        self.known.contains_key(key)
    }

    /// The ids with the times of their sets, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = (IdKey, u64)> {
        let ids = self.by_time.iter();
        ids.filter_map(|key| Some((*key, self.known.get(key)?.set_ms)))
    }

    /// Orders the ids by time, after some were added that are older than others.
    pub(super) fn sort(&mut self) {
        let since = |key: &IdKey| self.known.get(key).map(|known| known.since_us);
        self.by_time.make_contiguous().sort_by_key(since);
    }

    /// When the last id is over, on the steady clock; 0 without ids.
    pub(super) fn until_us(&self, window: Option<Duration>) -> u64 {
        let last = self.by_time.back().and_then(|key| self.known.get(key));
        match (last, window) {
            (Some(known), Some(window)) => until_us(known, window),
            _ => 0,
        }
    }

    /// The id with the first record, if that is before `until`: position, key, time of the set.
    pub(super) fn first_before(&self, until: u64) -> Option<(u64, IdKey, u64)> {
        let (&position, &key) = self.by_position.first_key_value()?;
        let known = self.known.get(&key).filter(|_| position < until)?;
        Some((position, key, known.set_ms))
    }

    /// The id of the record at `from` has another one at `to`.
    pub(super) fn renewed(&mut self, from: u64, to: u64) {
        if let Some(key) = self.by_position.remove(&from)
            && let Some(known) = self.known.get_mut(&key)
        {
            known.position = to;
            self.by_position.insert(to, key);
        }
    }
}

/// When the time of an id is over, on the steady clock.
fn until_us(known: &KnownId, window: Duration) -> u64 {
    let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
    known.since_us.saturating_add(window_us).max(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_an_id_is_the_same_in_every_version() {
        let keys = [b"ORDER-16", b"ORDER-17"].map(|id| u128::from_le_bytes(key_of(id)));
        let expected = [
            50_494_362_432_499_636_045_870_423_425_501_409_931,
            133_322_464_477_520_910_691_551_331_698_028_245_207,
        ];
        assert_eq!(keys, expected);
    }
}
