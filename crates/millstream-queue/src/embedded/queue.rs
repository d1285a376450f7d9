//! One queue, as threads of this process use it: its state, and operations on the whole queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::directory::Queues;
use super::open_directory::OpenDirectory;
use crate::broker::{Broker, Confirmation, EndedBy, GetOutcome};
use crate::connection::ConnectionId;
use crate::error::QueueError;
use crate::item::Item;
use crate::name;
use crate::protocol::GetKey;

impl Queues {
    /// The queue of this name, which is created with its first item.
    ///
    /// # Errors
    /// The name is not valid.
    pub fn queue(&self, name: &str) -> Result<Queue, QueueError> {
        name::check(name.as_bytes()).map_err(|fault| QueueError::Name {
            name: name.to_owned(),
            fault,
        })?;
        Ok(Queue {
            queues: self.clone(),
            name: name.into(),
        })
    }
}

/// One queue. Any number of threads may use it and its clones.
#[derive(Clone, Debug)]
pub struct Queue {
    queues: Queues,
    name: Arc<str>,
}

impl Queue {
    #[inline]
    pub(super) fn open_directory(&self) -> &OpenDirectory {
        self.queues.open_directory()
    }

    /// The name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the queue.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// The next item, which stays in the queue.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn peek(&self) -> Result<Option<Item>, QueueError> {
        let key = GetKey {
            name: &self.name,
            peek: true,
            ..GetKey::default()
        };
        let directory = self.open_directory();
        let (by, mut got) = directory.with_broker(|broker, now| {
            let by = broker.connect();
            Ok((by, broker.get(by, &key, now)))
        })?;
        // Other threads are served between two rounds of the search.
        while matches!(got, Ok(GetOutcome::Searching)) {
            got = directory.with_broker(|broker, now| {
                let got = broker.resume(by, &key, now);
                Ok(got.map(|got| got.unwrap_or(GetOutcome::Nothing)))
            })?;
        }
        self.disconnect(by, EndedBy::Client);
        match got? {
            GetOutcome::Item(item) => Ok(Some(item)),
            _ => Ok(None),
        }
    }

    /// The number of items, without the open ones.
    ///
    /// # Errors
    /// The queue is closed.
    pub fn len(&self) -> Result<u64, QueueError> {
        self.open_directory().with_broker(|broker, _| {
            let items = broker.items(&self.name);
            if items.is_none() {
                broker.check_not_closed(&self.name)?;
            }
            Ok(items.unwrap_or(0))
        })
    }

    /// Whether there are no items besides open ones.
    ///
    /// # Errors
    /// As for [`len`](Self::len).
    pub fn is_empty(&self) -> Result<bool, QueueError> {
        Ok(self.len()? == 0)
    }

    /// The statistics of the queue, by the names of `stats`; empty before the queue is created.
    ///
    /// # Errors
    /// The queue is closed.
    pub fn stats(&self) -> Result<BTreeMap<&'static str, u64>, QueueError> {
        self.open_directory().with_broker(|broker, now| {
            let numbers = broker.numbers_of(&self.name, now);
            if numbers.is_none() {
                broker.check_not_closed(&self.name)?;
            }
            Ok(numbers.into_iter().flatten().collect())
        })
    }

    /// Removes all items except the open ones. Returns whether the queue exists.
    ///
    /// # Errors
    /// The queue is closed, or the storage fails; the items are still there.
    pub fn flush(&self) -> Result<bool, QueueError> {
        let flush = |broker: &mut Broker<_>, now| broker.flush(&self.name, now);
        self.open_directory().with_broker(flush)
    }

    /// Deletes the queue, open or closed, with all its items. Returns whether it existed.
    ///
    /// # Errors
    /// The storage fails: the queue exists again after the next open of the directory.
    pub fn delete(&self) -> Result<bool, QueueError> {
        let delete = |broker: &mut Broker<_>, now| broker.delete(&self.name, now);
        self.open_directory().with_broker(delete)
    }

    /// Confirms the open item of a connection. Returns whether it was still open.
    pub(super) fn close(&self, by: ConnectionId) -> Result<bool, QueueError> {
        self.open_directory().with_broker(|broker, now| {
            let closed = broker.confirm(by, &self.name, 1, now);
            broker.disconnect(by, EndedBy::Client, now);
            Ok(closed == Confirmation::Confirmed)
        })
    }

    /// Requeues the open item of a connection, to be served again after `delay`. Returns whether it was still open.
    pub(super) fn abort(&self, by: ConnectionId, delay: Duration) -> Result<bool, QueueError> {
        let key = GetKey {
            name: &self.name,
            abort: true,
            delay_ms: Some(millis(delay)),
            ..GetKey::default()
        };
        self.open_directory().with_broker(|broker, now| {
            let aborted = broker.get(by, &key, now);
            broker.disconnect(by, EndedBy::Client, now);
            Ok(aborted? != GetOutcome::NotOpen)
        })
    }

    /// Begins the time of the open item of a connection anew. Returns whether it was still open.
    pub(super) fn touch(
        &self,
        by: ConnectionId,
        limit: Option<Duration>,
    ) -> Result<bool, QueueError> {
        self.open_directory()
            .with_broker(|broker, now| Ok(broker.touch(by, &self.name, None, limit, now)))
    }

    /// Ends a connection: its open item is requeued.
    pub(super) fn disconnect(&self, by: ConnectionId, ended: EndedBy) {
        let _ = self.open_directory().with_broker(|broker, now| {
            broker.disconnect(by, ended, now);
            Ok(())
        });
    }
}

/// A time in milliseconds, rounded up.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
