//! Putting items into a queue in process.

use std::time::Duration;

use super::queue::{Queue, millis};
use crate::broker::{Broker, PutOutcome, Refusal};
use crate::error::QueueError;
use crate::item::NewItem;
use crate::moment::Moment;
use crate::protocol::SetKey;
use crate::storage::JournalStorage;

/// So many items are put before others get their turn.
const ITEMS_AT_ONCE: usize = 256;

/// What else may be said about an item that is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// It expires after this time.
    pub expires: Option<Duration>,
    /// Nobody gets it before this time has passed. Counted in milliseconds.
    pub delay: Duration,
    /// A number of the user's own, which comes back with the item.
    pub flags: u32,
    /// Durable when it is put, whatever the queue's policy is.
    pub sync: bool,
}

impl Queue {
    /// Put an item at the back; its fan-out queues get a copy. Durable as the queue's policy says when this returns.
    ///
    /// # Errors
    /// The queue is full, the item too large, the disk full, or the queue kept closed: then the item is in none of the queues.
    /// After a sync that failed it may be in them, or not.
    pub fn put(&self, body: &[u8]) -> Result<(), QueueError> {
        self.put_with(body, &PutOptions::default())
    }

    /// The same, with more to say.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_with(&self, body: &[u8], options: &PutOptions) -> Result<(), QueueError> {
        let put = |broker: &mut Broker<_>, now| self.put_one(broker, body, options, now);
        self.open_directory().with_broker_synced(put)
    }

    /// Put items in their order. Each 256 of them share a sync, and come in without others between them.
    ///
    /// # Errors
    /// As for [`put`](Self::put), of the first item that is not taken: [`QueueError::Partly`] if others were stored before it.
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
        };
        let item = NewItem {
            flags: options.flags,
            expiry_ms: options
                .expires
                .map_or(0, |after| now.wall_ms.saturating_add(millis(after))),
            body,
            ..NewItem::default()
        };
        let (queue, bytes) = (self.name().to_owned(), body.len());
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
