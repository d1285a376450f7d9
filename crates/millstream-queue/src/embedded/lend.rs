//! The operations for flows: lent items, which are confirmed by their ids, and numbered items, which are put once.

use super::queue::Queue;
use crate::error::QueueError;
use crate::item::{Item, NewItem};

/// The number of items that are put before other threads get the lock.
const ITEMS_AT_ONCE: usize = 256;

impl Queue {
    /// Takes up to `items_max` items of about `bytes_max` bytes together, without waiting. Each is out of the queue
    /// until it is [confirmed](Self::confirm_lent) or [returned](Self::return_lent); a new open of the directory
    /// returns it too.
    ///
    /// # Errors
    /// The storage fails, or the queue is closed; items taken before that are in `out`.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn lend(
        &self,
        items_max: usize,
        bytes_max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), QueueError> {
        let before = out.len();
        let mut is_over = false;
        while !is_over && out.len() == before {
            is_over = self.open_directory().with_broker(|broker, now| {
                broker.lend(self.name(), (items_max, bytes_max), now, out)
            })?;
        }
        Ok(())
    }

    /// Removes the items with these ids, the latest of them added at `added_by_ms`, also if the directory was opened
    /// again since they were lent. Items that have left before are skipped.
    ///
    /// # Errors
    /// The storage fails; the other items are removed.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn confirm_lent(
        &self,
        ids: impl IntoIterator<Item = u64>,
        added_by_ms: u64,
    ) -> Result<(), QueueError> {
        self.open_directory()
            .with_broker(|broker, now| broker.confirm_lent(self.name(), ids, added_by_ms, now))
    }

    /// Returns lent items to the queue, as if they had never been lent.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn return_lent(&self, ids: impl IntoIterator<Item = u64>) {
        // A process that was forked from the one that lent them has nothing to return.
        let _ = self.open_directory().with_broker(|broker, now| {
            broker.return_lent(self.name(), ids, now);
            Ok(())
        });
    }

    /// Puts items whatever the limits are. With `from`, a source and the number of the first item, each is put once:
    /// items before [`next_index`](Self::next_index) are skipped. They are durable as the queue's policy says when
    /// this returns.
    ///
    /// # Errors
    /// The storage fails: the first items may be in the queue.
    #[doc(hidden)] // For the other crates of Millstream.
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
    /// The queue is closed.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn next_index(&self, source: u64) -> Result<u64, QueueError> {
        self.open_directory()
            .with_broker(|broker, _| broker.next_index(self.name(), source))
    }

    /// The length of the longest item that may be put, in bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.open_directory().item_bytes_max
    }

    /// Makes the queue and its fan-out queues durable, removals included, whatever their policies are.
    ///
    /// # Errors
    /// A sync failed.
    pub fn sync(&self) -> Result<(), QueueError> {
        self.open_directory().sync_logs(self.name())
    }
}
