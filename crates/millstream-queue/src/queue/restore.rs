//! Restoring a queue from its log: each record is read once.
//!
//! The bytes of items stay in the log and are read back when they are next. Only rewritten items are kept in memory,
//! as their records are out of order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::counters::QueueCounters;
use super::delayed::Delayed;
use super::due::Due;
use super::expiries::Expiries;
use super::ids::Ids;
use super::ready::Ready;
use super::relocations::{Compaction, Relocations};
use super::removed::RemovedIds;
use super::source_positions::SourcePositions;
use super::unsynced::Unsynced;
use super::{Backlog, Deliveries, Log, Queue};
use crate::config::Settings;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::queue::memory_budget::MemoryBudget;
use crate::storage::operation::{Head, Operation};

/// The state after the records so far.
#[derive(Debug, Default)]
struct Replay {
    items: u64,
    bytes: u64,
    /// Items whose own record is at this position or later are counted.
    from: u64,
    removed: RemovedIds,
    expiries: Expiries,
    /// Rewritten items: position and length.
    rewritten: BTreeMap<u64, (u64, u64)>,
    delayed: Delayed,
    deliveries: BTreeMap<u64, Deliveries>,
    source_positions: SourcePositions,
    /// The ids of items: position and time of the set.
    ids: HashMap<[u8; 16], (u64, u64), foldhash::fast::RandomState>,
}

impl Replay {
    fn of<L: Log>(name: &str, log: &mut L) -> Result<Self, QueueError> {
        let mut replay = Replay {
            from: log.first(),
            ..Replay::default()
        };
        for position in log.first()..log.next() {
            let record = match log.read(position) {
                Ok(record) => record,
                Err(cause) => {
                    return Err(QueueError::Storage {
                        queue: name.to_owned(),
                        cause,
                    });
                }
            };
            match Operation::decode(record) {
                Ok(operation) => {
                    let item = match operation {
                        Operation::Add { body, .. }
                        | Operation::Once { body, .. }
                        | Operation::From { body, .. }
                        | Operation::Moved { body, .. } => Some((position, body.len())),
                        Operation::Again { id, body, .. } => Some((id, body.len())),
                        _ => None,
                    };
                    replay.apply(position, operation);
                    if let Some((id, length)) = item
                        && log.has_tombstone(position)
                    {
                        replay.remove(id, length as u64);
                    }
                }
                Err(what) => {
                    return Err(QueueError::Record {
                        queue: name.to_owned(),
                        position,
                        what,
                    });
                }
            }
        }
        Ok(replay)
    }

    #[inline]
    fn apply(&mut self, position: u64, operation: Operation<'_>) {
        match operation {
            Operation::Add { head, due_ms, body }
            | Operation::Moved {
                head, due_ms, body, ..
            } => self.add(position, head, due_ms, body.len()),
            Operation::Once {
                head,
                due_ms,
                key,
                body,
            } => {
                self.add(position, head, due_ms, body.len());
                self.ids.insert(key, (position, head.added_ms));
            }
            Operation::Known { set_ms, key } => {
                self.ids.insert(key, (position, set_ms));
            }
            Operation::From {
                head,
                source,
                index,
                body,
            } => {
                self.count(body.len());
                self.expiries.insert(position, head.expiry_ms);
                self.source_positions.set(source, index + 1, position);
            }
            Operation::Mark { source, index } => self.source_positions.set(source, index, position),
            Operation::Again {
                head,
                due_ms,
                id,
                deliveries,
                history,
                body,
            } => {
                let length = body.len() as u64;
                if self.rewritten.insert(id, (position, length)).is_none() {
                    if id >= self.from && !self.removed.contains(id) {
                        self.removed.insert(id);
                    } else {
                        self.count(body.len());
                    }
                }
                if due_ms != 0 {
                    self.delayed.insert(id, due_ms, head.expiry_ms);
                } else {
                    self.delayed.remove(id);
                }
                if deliveries > 0 {
                    let deliveries = Deliveries {
                        count: deliveries,
                        first_ms: history.map_or(0, |history| history.first_failed_ms),
                    };
                    self.deliveries.insert(id, deliveries);
                }
            }
            Operation::Remove { id, bytes } => self.remove(id, u64::from(bytes)),
            Operation::Flush { from } => self.flush(position, from),
            Operation::Delivered {
                id,
                count,
                first_ms,
            } => {
                self.deliveries.insert(id, Deliveries { count, first_ms });
            }
        }
    }

    #[inline]
    fn add(&mut self, position: u64, head: Head, due_ms: u64, length: usize) {
        self.count(length);
        match due_ms {
            0 => self.expiries.insert(position, head.expiry_ms),
            _ => self.delayed.insert(position, due_ms, head.expiry_ms),
        }
    }

    #[inline]
    fn count(&mut self, length: usize) {
        self.items += 1;
        self.bytes += length as u64;
    }

    #[inline]
    fn remove(&mut self, id: u64, length: u64) {
        if !self.rewritten.is_empty() && self.rewritten.remove(&id).is_some() {
            // The original record was skipped when the item was rewritten.
        } else if id >= self.from && !self.removed.contains(id) {
            self.removed.insert(id);
        } else {
            return;
        }
        self.delayed.remove(id);
        self.deliveries.remove(&id);
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(length);
    }

    fn flush(&mut self, position: u64, from: u64) {
        self.rewritten.retain(|_, (position, _)| *position >= from);
        self.deliveries
            .retain(|id, _| self.rewritten.contains_key(id));
        self.items = self.rewritten.len() as u64;
        self.bytes = self.rewritten.values().map(|(_, length)| length).sum();
        self.delayed = Delayed::default();
        self.removed = RemovedIds::default();
        self.expiries = Expiries::default();
        self.from = position;
    }
}

impl<L: Log> Queue<L> {
    /// The queue in the state of its log.
    ///
    /// # Errors
    /// A record cannot be read or decoded.
    pub(crate) fn restore(
        name: Arc<str>,
        settings: Settings,
        mut log: L,
        memory: &MemoryBudget,
        now: Moment,
    ) -> Result<Self, QueueError> {
        let replay = Replay::of(&name, &mut log)?;
        let mut relocations = Relocations::default();
        replay
            .rewritten
            .iter()
            .for_each(|(&id, &(position, _))| relocations.insert(id, position));
        let held = replay
            .rewritten
            .keys()
            .filter(|&&id| replay.delayed.due_ms(id).is_none())
            .copied()
            .collect::<Vec<_>>();
        // Records that the previous process did not sync.
        let unsynced = Unsynced::since((log.durable() < log.next()).then_some(now.steady_us));
        let mut queue = Queue {
            name,
            settings,
            counters: QueueCounters {
                total_items: replay.items,
                restored_items: replay.items,
                ..QueueCounters::default()
            },
            waiters: VecDeque::new(),
            log,
            ready: Ready::new(memory.clone()),
            backlog: Backlog {
                position: replay.from,
                items: replay.items - held.len() as u64 - replay.delayed.len() as u64,
                removed: replay.removed,
                expiries: replay.expiries,
                oldest: None,
                deliveries: replay.deliveries,
            },
            delayed: replay.delayed,
            due: Due::default(),
            opens: BTreeMap::new(),
            memory: memory.clone(),
            open_deadlines: std::collections::BTreeSet::new(),
            relocations,
            compaction: Compaction::default(),
            source_positions: replay.source_positions,
            ids: Ids::restored(replay.ids, now),
            dead_letters: Vec::new(),
            items: replay.items,
            bytes: replay.bytes,
            unsynced,
            last_used_us: now.steady_us,
            is_unfinished: false,
            is_discarding: false,
            refusals: None,
            record: Vec::new(),
        };
        for id in held {
            if let Some((item, _)) = queue.read_item(queue.relocations.position(id))? {
                queue.backlog.deliveries.remove(&id);
                queue.ready.insert(item);
            }
        }
        // `stats` needs it while the log is closed.
        let _known_if_readable = queue.first_backlog_added_ms();
        queue.log.end_restore();
        Ok(queue)
    }
}
