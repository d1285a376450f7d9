//! The figures of queues for a page: as `stats` has them, with the connections that hold items.
//!
//! The work for one queue is bounded, so that no request waits long for it.

use std::sync::Arc;

use super::Broker;
use crate::item::Item;
use crate::moment::Moment;
use crate::queue::refusals::RefusedItems;
use crate::storage::Storage;

/// Open items, with the numbers of their connections.
pub(crate) type OpenItems = Vec<(Item, u64)>;

/// The number of open items of a queue that are looked at.
const OPENS_MAX: usize = 4096;
/// The number of connections of a queue that are reported: those that hold items, in the order of their oldest item.
const HOLDERS_MAX: usize = 32;

/// The figures of one queue. Counts are those since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct QueueFigures {
    /// Its name.
    pub name: Arc<str>,
    /// Items that are ready, in the backlog or delayed.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The disk space of the queue in bytes.
    pub disk_bytes: u64,
    /// The age in milliseconds of the oldest item that waits; 0 if there is none.
    pub oldest_ms: u64,
    /// Items that connections have open.
    pub open_items: u64,
    /// The age in milliseconds of the oldest of them; 0 if there is none.
    pub oldest_open_ms: u64,
    /// Connections that wait for an item.
    pub waiters: u64,
    /// Items added.
    pub total_items: u64,
    /// Items that expired.
    pub expired_items: u64,
    /// Of these, the items that moved to another queue.
    pub expired_moved_items: u64,
    /// Items removed because the queue was full.
    pub discarded_items: u64,
    /// Items that were delivered too often.
    pub failed_items: u64,
    /// Of these, the items that moved to another queue.
    pub failed_moved_items: u64,
    /// Items that left otherwise since the server started: taken, confirmed or flushed.
    pub left_items: u64,
    /// Items refused.
    pub refused: RefusedItems,
    /// Items of the parent that were not copied because the queue was full.
    pub skipped_items: u64,
    /// Why the last item could not be written, unless that is long ago.
    pub fault: Option<String>,
    /// Whether items wait here only to move on to another queue.
    pub is_delay: bool,
    /// Items that connections opened.
    pub opened_items: u64,
    /// Open items that were requeued.
    pub requeued_items: u64,
    /// The sync policy.
    pub sync: String,
    /// Connections that have items open, the one with the oldest item first, at most 32.
    pub holders: Vec<Holder>,
}

/// A connection that has items of a queue open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Holder {
    /// The number of the connection; numbers are reused.
    pub connection: u64,
    /// The address of its client.
    pub peer: String,
    /// The number of items that it has open.
    pub items: u64,
    /// The number of its oldest item.
    pub oldest: u64,
    /// For how long it has had that item open, in milliseconds, as far as it was observed.
    pub held_ms: u64,
}

impl<S: Storage> Broker<S> {
    /// The number of places for queues: each may be empty.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// The figures of the queue in a place, without the addresses of its holders; `None` for an empty place.
    pub(crate) fn figures(&mut self, place: usize, now: Moment) -> Option<QueueFigures> {
        let queue = self.slots.get_mut(place)?.queue.as_mut()?;
        let counters = queue.counters;
        let mut holders: Vec<Holder> = Vec::new();
        let mut oldest_open_ms = None;
        // In the order of arrival: the oldest items come first.
        for (id, item, connection) in queue.opened_items().take(OPENS_MAX) {
            oldest_open_ms = oldest_open_ms.into_iter().chain([item.added_ms]).min();
            let connection = connection.index() as u64;
            let known = holders.iter_mut().find(|one| one.connection == connection);
            if let Some(holder) = known {
                holder.items += 1;
            } else if holders.len() < HOLDERS_MAX {
                holders.push(Holder {
                    connection,
                    items: 1,
                    oldest: id,
                    ..Holder::default()
                });
            }
        }
        let gone = counters.expired_items + counters.discarded + counters.failed_items;
        let there = queue.items() + queue.open_items() as u64;
        Some(QueueFigures {
            name: Arc::clone(&queue.name),
            items: queue.items(),
            bytes: queue.bytes(),
            disk_bytes: queue.disk_bytes(),
            oldest_ms: queue.oldest_age_ms(now),
            open_items: queue.open_items() as u64,
            oldest_open_ms: oldest_open_ms.map_or(0, |added| now.wall_ms.saturating_sub(added)),
            waiters: queue.waiters.len() as u64,
            total_items: counters.total_items - counters.restored_items,
            expired_items: counters.expired_items,
            expired_moved_items: counters.expired_moved,
            discarded_items: counters.discarded,
            failed_items: counters.failed_items,
            failed_moved_items: counters.failed_moved,
            left_items: counters.total_items.saturating_sub(gone + there),
            refused: counters.refused,
            skipped_items: counters.skipped,
            fault: queue.fault_of_disk(now).map(str::to_owned),
            is_delay: queue.is_delay(),
            opened_items: counters.transactions,
            requeued_items: counters.canceled_transactions,
            sync: queue.settings.sync.to_string(),
            holders,
        })
    }

    /// The first items of a queue that wait in memory, and those that are open with their connections, each at most
    /// `items_max`. Nothing is read from the disk. `None` if there is no such queue.
    pub(crate) fn glance(&self, name: &str, items_max: usize) -> Option<(Vec<Item>, OpenItems)> {
        let queue = self.queue(*self.names.get(name)?)?;
        let opened = queue.opened_items().take(items_max);
        let opened = opened.map(|(_, item, by)| (item.clone(), by.index() as u64));
        Some((
            queue.ready_items().take(items_max).cloned().collect(),
            opened.collect(),
        ))
    }

    /// The memory of all items, the most that they may take, and the number of connections.
    pub(crate) fn usage(&self) -> (u64, u64, u64) {
        let connections = self.connections.iter().flatten().count() as u64;
        (self.memory.used(), self.limits.memory_bytes, connections)
    }

    /// How long the server has run, in milliseconds.
    pub(crate) fn uptime_ms(&self, now: Moment) -> u64 {
        now.steady_us.saturating_sub(self.started.steady_us) / 1_000
    }
}
