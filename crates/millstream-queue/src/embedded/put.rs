//! Putting items into a queue in process.

use std::time::Duration;

use super::queue::{Queue, millis};
use crate::broker::{Broker, PutOutcome, Refusal};
use crate::error::QueueError;
use crate::item::NewItem;
use crate::moment::Moment;
use crate::protocol::SetKey;
use crate::storage::JournalStorage;

/// The number of items that are put before other threads get the lock.
const ITEMS_AT_ONCE: usize = 256;

/// The properties of an item that is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// The time after which it expires.
    pub expires: Option<Duration>,
    /// The time before which it is not served. Counted in milliseconds.
    pub delay: Duration,
    /// A number of the user, which is returned with the item.
    pub flags: u32,
    /// Whether the item is durable when it is put, whatever the queue's policy is.
    pub sync: bool,
}

impl Queue {
    /// Puts an item at the end; its fan-out queues get a copy. It is durable as the queue's policy says when this
    /// returns.
    ///
    /// # Errors
    /// The queue is full or closed, the item too large, or the disk full: the item is in none of the queues. After a
    /// failed sync it may be in them or not.
    pub fn put(&self, body: &[u8]) -> Result<(), QueueError> {
        self.put_with(body, &PutOptions::default())
    }

    /// Puts an item with these properties.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_with(&self, body: &[u8], options: &PutOptions) -> Result<(), QueueError> {
        let put = |broker: &mut Broker<_>, now| self.put_one(broker, body, options, now);
        self.open_directory().with_broker_synced(put)
    }

    /// Puts items in order. Each 256 of them share a sync, and are put without items of others between them.
    ///
    /// # Errors
    /// As for [`put`](Self::put), for the first item that is refused: [`QueueError::Partly`] if others were stored
    /// before it.
    pub fn put_many<B: AsRef<[u8]>>(
        &self,
        bodies: impl IntoIterator<Item = B>,
        options: &PutOptions,
    ) -> Result<(), QueueError> {
        let mut bodies = bodies.into_iter().peekable();
        let mut stored = 0;
        while bodies.peek().is_some() {
            let outcome = self.open_directory().with_broker_synced(|broker, now| {
                bodies.by_ref().take(ITEMS_AT_ONCE).try_for_each(|body| {
                    self.put_one(broker, body.as_ref(), options, now)?;
                    stored += 1;
                    Ok(())
                })
            });
            match outcome {
                Ok(()) => {}
                Err(cause) if stored == 0 => return Err(cause),
                Err(cause) => {
                    return Err(QueueError::Partly {
                        stored,
                        cause: Box::new(cause),
                    });
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn put_one(
        &self,
        broker: &mut Broker<JournalStorage>,
        body: &[u8],
        options: &PutOptions,
        now: Moment,
    ) -> Result<(), QueueError> {
        let key = SetKey {
            name: self.name(),
            sync: options.sync,
            delay_ms: millis(options.delay),
            id: None,
        };
        let item = NewItem {
            flags: options.flags,
            expiry_ms: options
                .expires
                .map_or(0, |after| now.wall_ms.saturating_add(millis(after))),
            body,
            ..NewItem::default()
        };
        let queue = self.name().to_owned();
        let bytes = body.len();
        if bytes > self.open_directory().item_bytes_max {
            return Err(QueueError::TooLarge { queue, bytes });
        }
        match broker.put(&key, &item, now)? {
            PutOutcome::Stored => Ok(()),
            PutOutcome::Refused(Refusal::TooLarge) => Err(QueueError::TooLarge { queue, bytes }),
            PutOutcome::Refused(_) => Err(QueueError::Full { queue }),
        }
    }
}
