//! The face for flows: items that are lent and confirmed by their ids, and numbered items, which come in once.

use super::queue::Queue;
use crate::error::QueueError;
use crate::item::{Item, NewItem};

/// So many items are put before others get their turn.
const ITEMS_AT_ONCE: usize = 256;

impl Queue {
    /// Take up to `items_max` items, `bytes_max` long together or little more; never waits. Each is out of the queue until it is
    /// [confirmed](Self::confirm_lent) or [taken back](Self::return_lent); when the folder is opened again it is back.
    ///
    /// # Errors
    /// The storage refuses, or the queue is kept closed; what was taken before that is in `out`.
    pub fn lend(
        &self,
        items_max: usize,
        bytes_max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), QueueError> {
        self.open_directory()
            .with_broker(|broker, now| broker.lend(self.name(), (items_max, bytes_max), now, out))
    }

    /// The items with these ids, the latest of them added at `added_by_ms`, leave for good, also if the folder was opened again
    /// since they were lent. Those that have left before are passed over.
    ///
    /// # Errors
    /// The storage refuses; the others have left.
    pub fn confirm_lent(
        &self,
        ids: impl IntoIterator<Item = u64>,
        added_by_ms: u64,
    ) -> Result<(), QueueError> {
        self.open_directory()
            .with_broker(|broker, now| broker.confirm_lent(self.name(), ids, added_by_ms, now))
    }

    /// The items with these ids take their places again, as if they had never been lent.
    pub fn return_lent(&self, ids: impl IntoIterator<Item = u64>) {
        // A child of the process that lent them has nothing to give back.
        let _ = self.open_directory().with_broker(|broker, now| {
            broker.return_lent(self.name(), ids, now);
            Ok(())
        });
    }

    /// Put items whatever the limits say. With `from`, a source and the number of the first item, each comes in once: what
    /// [`next_index`](Self::next_index) says has come is passed over. Durable as the queue's policy says when this returns.
    ///
    /// # Errors
    /// The storage refuses: the items up to some place are in.
    pub fn put_always<B: AsRef<[u8]>>(
        &self,
        bodies: impl IntoIterator<Item = B>,
        mut from: Option<(u64, u64)>,
    ) -> Result<(), QueueError> {
        let mut bodies = bodies.into_iter().peekable();
        while bodies.peek().is_some() {
            self.open_directory().with_broker_synced(|broker, now| {
                bodies.by_ref().take(ITEMS_AT_ONCE).try_for_each(|body| {
                    let item = NewItem {
                        from,
                        body: body.as_ref(),
                        ..NewItem::default()
                    };
                    broker.put_always(self.name(), &item, now)?;
                    from = from.map(|(source, index)| (source, index + 1));
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    /// The number of the next item of `source` that is not in the queue.
    ///
    /// # Errors
    /// The queue is kept closed.
    pub fn next_index(&self, source: u64) -> Result<u64, QueueError> {
        self.open_directory()
            .with_broker(|broker, _| broker.next_index(self.name(), source))
    }

    /// The longest item that may be put, in bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.open_directory().item_bytes_max
    }

    /// Make the queue and its fan-out queues durable, what has left them too, whatever their policies say.
    ///
    /// # Errors
    /// A sync failed.
    pub fn sync(&self) -> Result<(), QueueError> {
        self.open_directory().sync_logs(self.name())
    }
}
