//! The history of an item: when it first failed, which queue it left, and why.
//!
//! Most items have no history. A history is kept when an item is rewritten or redriven.
//!
//! ```text
//! byte  0..8            8..16     16..24      24..28           28          29           30..
//!       first_failed_ms left_ms   expiry_ms   deliveries u32   reason u8   length u8    name of the queue
//! ```
//!
//! Reason 0: the item has left no queue, and `left_ms`, `expiry_ms`, `deliveries` and `length` are 0.

use std::mem::size_of;

const FAILED: u8 = 1;
const EXPIRED: u8 = 2;

/// The history of an item. `Q` is the type of the queue's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History<Q = Box<str>> {
    /// When the item first failed, wall clock in milliseconds; 0 never.
    pub first_failed_ms: u64,
    /// The queue that the item left last, because it failed or expired there.
    pub origin: Option<Origin<Q>>,
}

/// The queue that an item left, and the item's state then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<Q = Box<str>> {
    /// The queue.
    pub queue: Q,
    /// Why the item left.
    pub reason: Reason,
    /// When the item left, wall clock in milliseconds.
    pub left_ms: u64,
    /// The item's expiry there, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
    /// The number of failed deliveries, before earlier redrives too.
    pub deliveries: u32,
}

/// Why an item left a queue for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It was delivered and requeued `max_deliveries` times.
    Failed,
    /// It expired.
    Expired,
}

impl Reason {
    /// One word: `failed` or `expired`.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Failed => "failed",
            Reason::Expired => "expired",
        }
    }
}

impl History {
    /// Borrows the name.
    pub(crate) fn borrowed(&self) -> History<&str> {
        History {
            first_failed_ms: self.first_failed_ms,
            origin: self.origin.as_ref().map(|origin| Origin {
                queue: &*origin.queue,
                reason: origin.reason,
                left_ms: origin.left_ms,
                expiry_ms: origin.expiry_ms,
                deliveries: origin.deliveries,
            }),
        }
    }

    /// The memory of the history, approximately.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let name = self.origin.as_ref().map_or(0, |origin| origin.queue.len());
        (size_of::<Self>() + 32 + name) as u64
    }
}

impl<'a> History<&'a str> {
    /// Copies the name.
    pub(crate) fn owned(self) -> History {
        History {
            first_failed_ms: self.first_failed_ms,
            origin: self.origin.map(|origin| Origin {
                queue: origin.queue.into(),
                reason: origin.reason,
                left_ms: origin.left_ms,
                expiry_ms: origin.expiry_ms,
                deliveries: origin.deliveries,
            }),
        }
    }

    /// Appends the encoding to a record.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (left_ms, expiry_ms, deliveries, reason, queue) = match self.origin {
            None => (0, 0, 0, 0, ""),
            Some(origin) => {
                let reason = match origin.reason {
                    Reason::Failed => FAILED,
                    Reason::Expired => EXPIRED,
                };
                let Origin {
                    left_ms,
                    expiry_ms,
                    deliveries,
                    queue,
                    ..
                } = origin;
                (left_ms, expiry_ms, deliveries, reason, queue)
            }
        };
        out.extend_from_slice(&self.first_failed_ms.to_le_bytes());
        out.extend_from_slice(&left_ms.to_le_bytes());
        out.extend_from_slice(&expiry_ms.to_le_bytes());
        out.extend_from_slice(&deliveries.to_le_bytes());
        // Names of queues have at most 250 bytes.
        out.extend_from_slice(&[reason, queue.len() as u8]);
        out.extend_from_slice(queue.as_bytes());
    }

    /// Decodes a history at the front of `bytes`. Returns the rest as well.
    ///
    /// # Errors
    /// What is wrong with the history.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), &'static str> {
        const SHORT: &str = "the history of an item is cut short";
        let mut rest = bytes;
        let mut word = || -> Result<u64, &'static str> {
            let (word, after) = rest.split_first_chunk().ok_or(SHORT)?;
            rest = after;
            Ok(u64::from_le_bytes(*word))
        };
        let first_failed_ms = word()?;
        let left_ms = word()?;
        let expiry_ms = word()?;
        let (deliveries, rest) = rest.split_first_chunk().ok_or(SHORT)?;
        let [reason, length, rest @ ..] = rest else {
            return Err(SHORT);
        };
        let (queue, rest) = rest.split_at_checked(usize::from(*length)).ok_or(SHORT)?;
        let reason = match *reason {
            0 => None,
            FAILED => Some(Reason::Failed),
            EXPIRED => Some(Reason::Expired),
            _ => return Err("the history of an item has an unknown reason"),
        };
        let queue = str::from_utf8(queue).map_err(|_| "the name of a queue is not UTF-8")?;
        let origin = reason.map(|reason| Origin {
            queue,
            reason,
            left_ms,
            expiry_ms,
            deliveries: u32::from_le_bytes(*deliveries),
        });
        let history = History {
            first_failed_ms,
            origin,
        };
        Ok((history, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOVED: History<&str> = History {
        first_failed_ms: 5,
        origin: Some(Origin {
            queue: "orders+audit",
            reason: Reason::Expired,
            left_ms: 1 << 40,
            expiry_ms: 7,
            deliveries: 3,
        }),
    };

    #[test]
    fn a_history_is_read_as_it_was_written_and_a_short_one_refused() {
        let failed = History {
            first_failed_ms: 9,
            origin: None,
        };
        for history in [MOVED, failed] {
            let mut bytes = Vec::new();
            history.encode(&mut bytes);
            for length in 0..bytes.len() {
                assert!(History::decode(&bytes[..length]).is_err(), "{length}");
            }
            bytes.extend_from_slice(b"item");
            assert_eq!(History::decode(&bytes), Ok((history, &b"item"[..])));
            assert_eq!(history.owned().borrowed(), history);
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let mut bytes = Vec::new();
        MOVED.encode(&mut bytes);
        assert_eq!(bytes[..9], [5, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..30], [7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 12]);
        assert_eq!(bytes[30..], *b"orders+audit");
        bytes[28] = 9;
        assert!(History::decode(&bytes).is_err());
    }
}
