//! Pruning the log of a queue, also when one old item is left.
//!
//! Segments before the oldest item are pruned. When old items keep a log that is mostly dead, a *round* rewrites them
//! at its end, some at a time. Such items are ready, open, delayed or due: the backlog is never rewritten, as all
//! records after its beginning are live.

use super::ids;
use super::ready::ITEM_OVERHEAD_BYTES;
use super::relocations::PrunePoint;
use super::{Log, Queue};
use crate::error::Cause;
use crate::item::Item;
use crate::storage::operation::Operation;

/// The number of records between two checks whether rewritten items are durable.
const INSPECT_DEFERRED_RECORDS: u64 = 512;
/// The number of bytes that may be appended before compaction syncs by itself.
const DEFERRED_BYTES: u64 = 32 << 20;
/// The number of records between two inspections of the log.
const INSPECT_EVERY_RECORDS: u64 = 4096;
/// The same on a disk that was full: space is freed as soon as it can be, also where a set has found room meanwhile.
const INSPECT_FULL_RECORDS: u64 = 16;
/// The number of bytes between two inspections.
const INSPECT_EVERY_BYTES: u64 = 8 << 20;
/// The limit of what one inspection rewrites, so that no request waits long for it.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_ITEMS: usize = 4096;
/// A log is compacted when it is this many times as large as its items...
const DEAD_RATIO: u64 = 4;
/// ...and larger than this.
const LOG_BYTES_MIN: u64 = 64 << 10;

impl<L: Log> Queue<L> {
    #[inline]
    pub(super) fn compact_if_due(&mut self) {
        if self.log.next() >= self.compaction.due_records
            || self.log.bytes() >= self.compaction.due_bytes
        {
            self.compact();
        }
    }

    /// Prunes and rewrites as far as is worth it. A failure changes nothing; the next inspection tries again.
    pub(super) fn compact(&mut self) {
        self.compaction.due_records = self.log.next()
            + if self.log.was_full() {
                INSPECT_FULL_RECORDS
            } else {
                INSPECT_EVERY_RECORDS
            };
        self.prune();
        let bytes = self.log.bytes();
        self.compaction.due_bytes = bytes + INSPECT_EVERY_BYTES;
        self.compaction.compacted_bytes = self.compaction.compacted_bytes.min(bytes);
        let open_bytes: u64 = self
            .opens
            .values()
            .map(|open| open.item.body.len() as u64)
            .sum();
        let live = self.bytes
            + open_bytes
            + (self.items + self.opens.len() as u64) * ITEM_OVERHEAD_BYTES
            + self.ids.len() as u64 * ids::RECORD_BYTES;
        let worth_it = bytes > LOG_BYTES_MIN
            && bytes / DEAD_RATIO > live
            && bytes / 2 > self.compaction.compacted_bytes;
        if self.compaction.round.is_none() && worth_it {
            // Only items in memory are rewritten. If the log cannot be read, its records stay.
            let _read = self.read_back();
            self.compaction.round = Some((0, self.log.next()));
        }
        if let Some((from, until)) = self.compaction.round {
            // After a full disk the round resumes from the same id, or item.
            let Ok(true) = self.renew_ids(until) else {
                return;
            };
            let Ok(from) = self.rewrite_some(from, until) else {
                return;
            };
            self.relocations.below = self.relocations.below.max(from);
            self.compaction.round = (from < until).then_some((from, until));
            if self.compaction.round.is_none() {
                self.prune();
                self.compaction.compacted_bytes = self.log.bytes();
            }
        }
    }

    /// The disk is full: a deferred prune must not wait longer.
    #[cold]
    pub(super) fn expedite_prune(&mut self) {
        if let Some(deferred) = &mut self.relocations.deferred {
            deferred.bytes = 0;
            (self.compaction.due_records, self.compaction.due_bytes) = (0, 0);
        }
        let soon = self.log.next() + INSPECT_FULL_RECORDS;
        self.compaction.due_records = self.compaction.due_records.min(soon);
    }

    pub(super) fn prune(&mut self) {
        self.expire_ids(self.last_used_us);
        let first = self.log.first();
        let oldest = self.renew_source_positions(self.oldest());
        let Some(prune_point) = self.prune_point(oldest) else {
            self.compaction.due_records = self.log.next() + INSPECT_DEFERRED_RECORDS;
            return;
        };
        // If the system refuses now, the next inspection tries again.
        if self.log.prune(prune_point).is_ok() && self.log.first() > first {
            self.compaction.rotations += 1;
        }
    }

    /// The position before which records can be pruned now, if those before `oldest` are not needed. Whatever the
    /// sync policy is, a durable item must stay durable: its rewritten record must be durable before the former one
    /// is pruned. A sync here would block all requests, and usually another one comes soon: for acknowledgements, or
    /// at the end of a segment.
    fn prune_point(&mut self, oldest: u64) -> Option<u64> {
        let durable = self.log.durable();
        let bytes = self.log.bytes();
        let now = PrunePoint {
            oldest,
            needed: self.relocations.needed,
            bytes,
        };
        // A removed item cannot become less durable.
        let needs_nothing = oldest == self.log.next();
        if oldest <= self.log.first() || durable >= now.needed || needs_nothing {
            self.relocations.deferred = None;
            return Some(oldest);
        }
        let deferred = *self.relocations.deferred.get_or_insert(now);
        if durable >= deferred.needed {
            self.relocations.deferred = Some(now);
            return Some(deferred.oldest);
        }
        if bytes < deferred.bytes.saturating_add(DEFERRED_BYTES) && deferred.bytes > 0
            || self.sync().is_err()
        {
            return None;
        }
        self.relocations.deferred = None;
        Some(oldest)
    }

    /// Rewrites the numbers of sources that only records before `oldest` have. Returns the first position that is
    /// needed then.
    fn renew_source_positions(&mut self, oldest: u64) -> u64 {
        while let Some((source, index, position)) = self.source_positions.before(oldest) {
            // On a full disk the former record is kept for now.
            let Ok(renewed) = self.append_reserved(&Operation::Mark { source, index }) else {
                return position;
            };
            self.source_positions.set(source, index, renewed);
            self.relocations.needed = self.relocations.needed.max(renewed + 1);
        }
        oldest
    }

    /// The first position that is needed.
    pub(super) fn oldest(&self) -> u64 {
        let below = self.relocations.below;
        let ready = self.ready.range(below).next().map(|item| item.id);
        let open = self.opens.range(below..).next().map(|(&id, _)| id);
        let delayed = self.delayed.range(below).next();
        let due = self.due.range(below).next();
        let dead_letters = self
            .dead_letters
            .iter()
            .map(|dead_letters| dead_letters.item.id)
            .min();
        let moved = self.relocations.by_position.first().copied();
        let id = self.ids.oldest();
        let backlog = (self.backlog.items > 0).then_some(self.backlog.position);
        [ready, open, delayed, due, dead_letters, moved, backlog, id]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.log.next())
    }

    /// Rewrites items with these ids. Returns the id from which to resume.
    fn rewrite_some(&mut self, from: u64, until: u64) -> Result<u64, Cause> {
        let open = self
            .opens
            .range(from..until)
            .map(|(_, open)| open.item.clone());
        let ready = self
            .ready
            .range(from)
            .take_while(|item| item.id < until)
            .cloned();
        let mut items: Vec<Item> = open
            .take(REWRITE_ITEMS)
            .chain(ready.take(REWRITE_ITEMS))
            .collect();
        let delayed = self.delayed.range(from).take_while(|&id| id < until);
        let due = self.due.range(from).take_while(|&id| id < until);
        let in_log: Vec<u64> = delayed
            .take(REWRITE_ITEMS)
            .chain(due.take(REWRITE_ITEMS))
            .collect();
        for id in in_log {
            items.extend(
                self.read_item(self.relocations.position(id))?
                    .map(|(item, _)| item),
            );
        }
        items.sort_unstable_by_key(|item| item.id);
        // Each of the four contributes its first items, so that the first of all are among them.
        let whole = items.len() < REWRITE_ITEMS;
        items.truncate(REWRITE_ITEMS);
        let mut written = 0;
        for item in &items {
            if written > REWRITE_BYTES {
                return Ok(item.id);
            }
            self.rewrite(item, self.delayed.due_ms(item.id).unwrap_or(0))?;
            written += item.body.len() as u64 + ITEM_OVERHEAD_BYTES;
        }
        Ok(if whole {
            until
        } else {
            items.last().map_or(until, |item| item.id + 1)
        })
    }

    pub(super) fn rewrite(&mut self, item: &Item, due_ms: u64) -> Result<(), Cause> {
        let Item { id, deliveries, .. } = *item;
        let position = self.append(&Operation::Again {
            head: item.head(),
            due_ms,
            id,
            deliveries,
            history: item.history.as_ref().map(|history| history.borrowed()),
            body: &item.body,
        })?;
        self.relocations.insert(id, position);
        Ok(())
    }
}
