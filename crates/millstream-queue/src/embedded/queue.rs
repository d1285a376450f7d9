//! One queue, as threads of this process use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{OpenItem, Queues, Waiting};
use crate::broker::{Got, Put, Queues as Core, Refusal};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::{Item, NewItem};
use crate::moment::Moment;
use crate::protocol::{GetKey, SetKey};
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

/// One queue. Any number of threads may use it and its copies.
#[derive(Clone, Debug)]
pub struct Queue {
    queues: Queues,
    name: Arc<str>,
}

impl Queue {
    pub(super) fn new(queues: Queues, name: Arc<str>) -> Self {
        Queue { queues, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The queues that it is one of.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

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
        let put = |queues: &mut Core<_>, now| self.put_one(queues, body, options, now);
        self.queues.shared().touch_and_sync(put)
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
            let outcome = self.queues.shared().touch_and_sync(|queues, now| {
                bodies.by_ref().take(ITEMS_AT_ONCE).try_for_each(|body| {
                    self.put_one(queues, body.as_ref(), options, now)?;
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
        queues: &mut Core<JournalStorage>,
        body: &[u8],
        options: &PutOptions,
        now: Moment,
    ) -> Result<(), QueueError> {
        let key = SetKey {
            name: &self.name,
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
        let (queue, bytes) = (self.name.to_string(), body.len());
        if bytes > self.queues.shared().item_bytes_max {
            return Err(QueueError::TooLarge { queue, bytes });
        }
        match queues.put(&key, &item, now)? {
            Put::Stored => Ok(()),
            Put::Refused(Refusal::TooLarge) => Err(QueueError::TooLarge { queue, bytes }),
            Put::Refused(_) => Err(QueueError::Full { queue }),
        }
    }

    /// Take the next item; wait `wait` for it at most. Who waits first is served first. It has left the queue for good.
    ///
    /// # Errors
    /// The storage refuses, or the queue is kept closed; nothing was taken.
    pub fn get(&self, wait: Duration) -> Result<Option<Vec<u8>>, QueueError> {
        Ok(self.get_item(wait)?.map(|item| item.body.to_vec()))
    }

    /// The same, with all that is known about the item.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_item(&self, wait: Duration) -> Result<Option<Item>, QueueError> {
        Ok(self.wait(wait, false)?.wait()?.map(OpenItem::into_item))
    }

    /// Take the next item, but only for as long as the [`OpenItem`] lives, unless that is closed.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn open(&self, wait: Duration) -> Result<Option<OpenItem>, QueueError> {
        self.wait(wait, true)?.wait()
    }

    /// Stand in line for the next item, for who has something else to look at while it waits. `open` as [`open`](Self::open) or
    /// else as [`get`](Self::get).
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn wait(&self, wait: Duration, open: bool) -> Result<Waiting, QueueError> {
        Waiting::begin(self, wait, open)
    }

    /// The next item, which stays.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn peek(&self) -> Result<Option<Item>, QueueError> {
        let key = GetKey {
            name: &self.name,
            peek: true,
            ..GetKey::default()
        };
        self.queues.shared().touch(|queues, now| {
            let by = queues.connect();
            let got = queues.get(by, &key, now);
            queues.disconnect(by, now);
            match got? {
                Got::Item(item) => Ok(Some(item)),
                _ => Ok(None),
            }
        })
    }

    /// How many items there are, but for those that are open.
    ///
    /// # Errors
    /// The queue is kept closed.
    pub fn len(&self) -> Result<u64, QueueError> {
        self.queues.shared().touch(|queues, _| {
            let items = queues.items(&self.name);
            if items.is_none() {
                queues.check_not_closed(&self.name)?;
            }
            Ok(items.unwrap_or(0))
        })
    }

    /// Whether there is no item, but for those that are open.
    ///
    /// # Errors
    /// As for [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, QueueError> {
        Ok(self.len()? == 0)
    }

    /// Its numbers, by the names that `stats` of the protocol gives them; none before it has come to be.
    ///
    /// # Errors
    /// The queue is kept closed.
    pub fn stats(&self) -> Result<BTreeMap<&'static str, u64>, QueueError> {
        self.queues.shared().touch(|queues, now| {
            let numbers = queues.numbers_of(&self.name, now);
            if numbers.is_none() {
                queues.check_not_closed(&self.name)?;
            }
            Ok(numbers.into_iter().flatten().collect())
        })
    }

    /// Remove all items but those that are open; whether there is such a queue.
    ///
    /// # Errors
    /// The queue is kept closed, or the storage refuses; the items are still there.
    pub fn flush(&self) -> Result<bool, QueueError> {
        let flush = |queues: &mut Core<_>, _| queues.flush(&self.name);
        self.queues.shared().touch(flush)
    }

    /// Remove the queue with all its items, also one that is kept closed; whether there was one.
    ///
    /// # Errors
    /// The storage refuses: then the queue will be there again when the folder is opened again.
    pub fn delete(&self) -> Result<bool, QueueError> {
        let delete = |queues: &mut Core<_>, _| queues.delete(&self.name);
        self.queues.shared().touch(delete)
    }

    /// Confirm what a connection has open; whether it was still open.
    pub(super) fn close(&self, by: ConnectionId) -> Result<bool, QueueError> {
        self.queues.shared().touch(|queues, now| {
            let closed = queues.confirm(by, &self.name, 1);
            queues.disconnect(by, now);
            Ok(closed)
        })
    }

    /// A connection ends: what it has open goes back.
    pub(super) fn disconnect(&self, by: ConnectionId) {
        let _ = self.queues.shared().touch(|queues, now| {
            queues.disconnect(by, now);
            Ok(())
        });
    }
}

/// In milliseconds, and not sooner.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
