//! The changes of a queue, as records of its log.
//!
//! All numbers are little-endian. Byte 1 is the version of the format, and bytes 2 and 3 are 0. The id of an item is
//! the position of the record that added it. The item keeps the id when it is rewritten so that old segments can be
//! pruned.
//!
//! ```text
//! byte   0      1      4..8         8..16      16..24                  24..32
//! ADD       1   1      flags u32    added_ms   expiry_ms (0 never)     item...
//! DELAYED   2   1      flags        added_ms   expiry_ms               due_ms, then item...
//! AGAIN     3   1      flags        added_ms   expiry_ms               due_ms (0: at once), id, deliveries u32, item...
//! REMOVE    4   1      bytes u32    id
//! FLUSH     5   1      0            from: every item last written before this position is gone
//! DELIVERED 6   1      count u32    id         first_ms
//! FROM      7   1      flags        added_ms   expiry_ms               source, index, item...
//! MARK      8   1      0            source     index
//! MOVED     9   1      flags        added_ms   expiry_ms               due_ms (0: at once), history, item...
//! AGAIN    10   1      flags        added_ms   expiry_ms               due_ms, id, deliveries u32, history, item...
//! ONCE     11   1      flags        added_ms   expiry_ms               due_ms (0: at once), key 16 bytes, item...
//! KNOWN    12   1      0            set_ms     key 16 bytes
//! ```
//!
//! MOVED adds an item that has a [history](crate::item::history): it comes from another queue. Kind 10 is AGAIN for
//! an item with a history.
//!
//! ONCE adds an item with the id of a client, whose key is `xxh3_128(id)`, little-endian: the queue takes no other one
//! with this id for a while. KNOWN records the same, of an item that was added at `set_ms`, when the earlier records
//! are pruned.
//!
//! FROM adds an item that a source has numbered, so that it is put once: the queue has all items of that source
//! before `index` + 1. MARK records the same (all before `index`) when the earlier records are pruned.

use std::fmt;

use crate::item::history::History;

/// The version of the format.
pub const VERSION: u32 = 1;
const ADD: u8 = 1;
const DELAYED: u8 = 2;
const AGAIN: u8 = 3;
const REMOVE: u8 = 4;
const FLUSH: u8 = 5;
const DELIVERED: u8 = 6;
const FROM: u8 = 7;
const MARK: u8 = 8;
const MOVED: u8 = 9;
const AGAIN_WITH_HISTORY: u8 = 10;
const ONCE: u8 = 11;
const KNOWN: u8 = 12;

/// The properties of an item besides its id and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The client's own number.
    pub flags: u32,
    /// When it was added, wall clock in milliseconds.
    pub added_ms: u64,
    /// When it expires, wall clock in milliseconds; 0 never.
    pub expiry_ms: u64,
}

/// One change of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// An item was added. It is not served before `due_ms` (0: no delay).
    Add {
        /// Flags and times.
        head: Head,
        /// Wall clock in milliseconds.
        due_ms: u64,
        /// The item.
        body: &'a [u8],
    },
    /// An item was rewritten, since older records are pruned or since it was returned with a delay; its former record
    /// is no longer needed.
    Again {
        /// Flags and times.
        head: Head,
        /// Wall clock in milliseconds, 0 for an item that is not delayed.
        due_ms: u64,
        /// The item's id.
        id: u64,
        /// The number of deliveries after which it was requeued.
        deliveries: u32,
        /// The item's history.
        history: Option<History<&'a str>>,
        /// The item.
        body: &'a [u8],
    },
    /// An item was added that comes from another queue. It is not served before `due_ms` (0: no delay).
    Moved {
        /// Flags and times.
        head: Head,
        /// Wall clock in milliseconds.
        due_ms: u64,
        /// The item's history.
        history: History<&'a str>,
        /// The item.
        body: &'a [u8],
    },
    /// An item was added that `source` has numbered `index`.
    From {
        /// Flags and times.
        head: Head,
        /// The source.
        source: u64,
        /// The number.
        index: u64,
        /// The item.
        body: &'a [u8],
    },
    /// An item was added with the id of a client. It is not served before `due_ms` (0: no delay).
    Once {
        /// Flags and times.
        head: Head,
        /// Wall clock in milliseconds.
        due_ms: u64,
        /// The key of the id.
        key: [u8; 16],
        /// The item.
        body: &'a [u8],
    },
    /// An item with this id was added.
    Known {
        /// When it was added, wall clock in milliseconds.
        set_ms: u64,
        /// The key of the id.
        key: [u8; 16],
    },
    /// All items of `source` before `index` were added.
    Mark {
        /// The source.
        source: u64,
        /// The next number.
        index: u64,
    },
    /// An item was removed.
    Remove {
        /// The item's id.
        id: u64,
        /// Its length.
        bytes: u32,
    },
    /// All items were removed whose last record is before this position.
    Flush {
        /// The position.
        from: u64,
    },
    /// An item was delivered and requeued, `count` times so far.
    Delivered {
        /// The item's id.
        id: u64,
        /// The number of deliveries.
        count: u32,
        /// The time of the first failure, wall clock in milliseconds.
        first_ms: u64,
    },
}

/// Why a record cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordFault {
    /// It was written in another version of the format.
    Version(u32),
    /// It is malformed.
    Malformed(&'static str),
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordFault::Version(found) => {
                write!(f, "version {found}, this program reads {VERSION}")
            }
            RecordFault::Malformed(what) => f.write_str(what),
        }
    }
}

impl From<&'static str> for RecordFault {
    fn from(what: &'static str) -> Self {
        RecordFault::Malformed(what)
    }
}

const SHORT: RecordFault = RecordFault::Malformed("the record of a queue is cut short");

impl<'a> Operation<'a> {
    /// Appends the record to `out`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Operation::Add {
                head,
                due_ms: 0,
                body,
            } => {
                encode_head(out, ADD, head);
                out.extend_from_slice(body);
            }
            Operation::Add { head, due_ms, body } => {
                encode_head(out, DELAYED, head);
                out.extend_from_slice(&due_ms.to_le_bytes());
                out.extend_from_slice(body);
            }
            Operation::Again {
                head,
                due_ms,
                id,
                deliveries,
                history,
                body,
            } => {
                encode_head(out, again(history.is_some()), head);
                out.extend_from_slice(&due_ms.to_le_bytes());
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(&deliveries.to_le_bytes());
                history.inspect(|history| history.encode(out));
                out.extend_from_slice(body);
            }
            Operation::Moved {
                head,
                due_ms,
                history,
                body,
            } => {
                encode_head(out, MOVED, head);
                out.extend_from_slice(&due_ms.to_le_bytes());
                history.encode(out);
                out.extend_from_slice(body);
            }
            Operation::From {
                head,
                source,
                index,
                body,
            } => {
                encode_head(out, FROM, head);
                out.extend_from_slice(&source.to_le_bytes());
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(body);
            }
            Operation::Once {
                head,
                due_ms,
                key,
                body,
            } => {
                encode_head(out, ONCE, head);
                out.extend_from_slice(&due_ms.to_le_bytes());
                out.extend_from_slice(&key);
                out.extend_from_slice(body);
            }
            _ => self.encode_change(out),
        }
    }

    /// Appends a record without an item.
    #[inline]
    fn encode_change(&self, out: &mut Vec<u8>) {
        match *self {
            Operation::Known { set_ms, key } => {
                encode_short(out, KNOWN, 0, set_ms);
                out.extend_from_slice(&key);
            }
            Operation::Mark { source, index } => {
                encode_short(out, MARK, 0, source);
                out.extend_from_slice(&index.to_le_bytes());
            }
            Operation::Remove { id, bytes } => encode_short(out, REMOVE, bytes, id),
            Operation::Flush { from } => encode_short(out, FLUSH, 0, from),
            Operation::Delivered {
                id,
                count,
                first_ms,
            } => {
                encode_short(out, DELIVERED, count, id);
                out.extend_from_slice(&first_ms.to_le_bytes());
            }
            Operation::Add { .. }
            | Operation::Again { .. }
            | Operation::Moved { .. }
            | Operation::Once { .. }
            | Operation::From { .. } => {}
        }
    }

    /// The properties of the item that the record adds, if it may be served at once.
    pub(crate) fn head_of_ready(&self) -> Option<Head> {
        match *self {
            Operation::Add {
                head, due_ms: 0, ..
            }
            | Operation::From { head, .. }
            | Operation::Moved {
                head, due_ms: 0, ..
            }
            | Operation::Once {
                head, due_ms: 0, ..
            } => Some(head),
            _ => None,
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// What is wrong with the record.
    #[inline]
    pub fn decode(record: &'a [u8]) -> Result<Self, RecordFault> {
        let (first, rest) = word(record).ok_or(SHORT)?;
        let kind = first as u8;
        let number = (first >> 32) as u32;
        match first as u32 >> 8 {
            VERSION => {}
            found @ ..=0xFF => return Err(RecordFault::Version(found)),
            _ => return Err("this is not the record of a queue".into()),
        }
        let (word, rest) = word(rest).ok_or(SHORT)?;
        if let REMOVE | FLUSH | DELIVERED = kind {
            return Ok(match kind {
                REMOVE => Operation::Remove {
                    id: word,
                    bytes: number,
                },
                FLUSH => Operation::Flush { from: word },
                _ => Operation::Delivered {
                    id: word,
                    count: number,
                    first_ms: self::word(rest).ok_or(SHORT)?.0,
                },
            });
        }
        if kind == KNOWN {
            let key = *rest.first_chunk().ok_or(SHORT)?;
            return Ok(Operation::Known { set_ms: word, key });
        }
        if kind == MARK {
            let (index, _) = self::word(rest).ok_or(SHORT)?;
            return Ok(Operation::Mark {
                source: word,
                index,
            });
        }
        let (expiry_ms, rest) = self::word(rest).ok_or(SHORT)?;
        let head = Head {
            flags: number,
            added_ms: word,
            expiry_ms,
        };
        Self::decode_item(kind, head, rest)
    }

    /// Decodes the rest of a record with an item, after its times.
    #[inline]
    fn decode_item(kind: u8, head: Head, rest: &'a [u8]) -> Result<Self, RecordFault> {
        match kind {
            ADD => Ok(Operation::Add {
                head,
                due_ms: 0,
                body: rest,
            }),
            DELAYED => {
                let (due_ms, body) = word(rest).ok_or(SHORT)?;
                Ok(Operation::Add { head, due_ms, body })
            }
            AGAIN | AGAIN_WITH_HISTORY => {
                let (due_ms, rest) = word(rest).ok_or(SHORT)?;
                let (id, rest) = word(rest).ok_or(SHORT)?;
                let (deliveries, rest) = rest.split_first_chunk().ok_or(SHORT)?;
                let (history, body) = match kind {
                    AGAIN => (None, rest),
                    _ => History::decode(rest).map(|(history, body)| (Some(history), body))?,
                };
                Ok(Operation::Again {
                    head,
                    due_ms,
                    id,
                    deliveries: u32::from_le_bytes(*deliveries),
                    history,
                    body,
                })
            }
            MOVED => {
                let (due_ms, rest) = word(rest).ok_or(SHORT)?;
                let (history, body) = History::decode(rest)?;
                Ok(Operation::Moved {
                    head,
                    due_ms,
                    history,
                    body,
                })
            }
            FROM => {
                let (source, rest) = word(rest).ok_or(SHORT)?;
                let (index, body) = word(rest).ok_or(SHORT)?;
                Ok(Operation::From {
                    head,
                    source,
                    index,
                    body,
                })
            }
            ONCE => {
                let (due_ms, rest) = word(rest).ok_or(SHORT)?;
                let (key, body) = rest.split_first_chunk().ok_or(SHORT)?;
                Ok(Operation::Once {
                    head,
                    due_ms,
                    key: *key,
                    body,
                })
            }
            _ => Err("the record of a queue has an unknown kind".into()),
        }
    }
}

fn again(has_history: bool) -> u8 {
    if has_history {
        AGAIN_WITH_HISTORY
    } else {
        AGAIN
    }
}

#[inline]
fn encode_head(out: &mut Vec<u8>, kind: u8, head: Head) {
    encode_short(out, kind, head.flags, head.added_ms);
    out.extend_from_slice(&head.expiry_ms.to_le_bytes());
}

#[inline]
fn encode_short(out: &mut Vec<u8>, kind: u8, number: u32, word: u64) {
    let first = u64::from(kind) | u64::from(VERSION) << 8 | u64::from(number) << 32;
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&word.to_le_bytes());
}

#[inline]
fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::history::{Origin, Reason};

    const HEAD: Head = Head {
        flags: 7,
        added_ms: 1_700_000_000_123,
        expiry_ms: 9,
    };

    const HISTORY: History<&str> = History {
        first_failed_ms: 77,
        origin: Some(Origin {
            queue: "work",
            reason: Reason::Failed,
            left_ms: 78,
            expiry_ms: 79,
            deliveries: 4,
        }),
    };

    fn all() -> [Operation<'static>; 12] {
        [
            Operation::Add {
                head: HEAD,
                due_ms: 0,
                body: b"hello",
            },
            Operation::Add {
                head: HEAD,
                due_ms: 5,
                body: b"",
            },
            Operation::Again {
                head: HEAD,
                due_ms: 4,
                id: 3,
                deliveries: 2,
                history: None,
                body: b"x",
            },
            Operation::Remove {
                id: 1 << 40,
                bytes: 5,
            },
            Operation::Flush { from: 12 },
            Operation::Delivered {
                id: 3,
                count: u32::MAX,
                first_ms: 12,
            },
            Operation::Again {
                head: HEAD,
                due_ms: 0,
                id: 3,
                deliveries: 2,
                history: Some(HISTORY),
                body: b"with a history",
            },
            Operation::Moved {
                head: HEAD,
                due_ms: 77,
                history: HISTORY,
                body: b"dead",
            },
            Operation::From {
                head: HEAD,
                source: 1 << 63,
                index: 5,
                body: b"from a flow",
            },
            Operation::Mark {
                source: 1 << 63,
                index: 6,
            },
            Operation::Once {
                head: HEAD,
                due_ms: 6,
                key: *b"the key of an id",
                body: b"with an id",
            },
            Operation::Known {
                set_ms: 5,
                key: *b"the key of an id",
            },
        ]
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for operation in all() {
            let mut record = Vec::new();
            operation.encode(&mut record);
            assert_eq!(Operation::decode(&record), Ok(operation));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_picture() {
        let mut record = Vec::new();
        all()[0].encode(&mut record);
        assert_eq!(record[..8], [1, 1, 0, 0, 7, 0, 0, 0]);
        assert_eq!(record[8..16], 1_700_000_000_123u64.to_le_bytes());
        assert_eq!(record[16..], *b"\x09\0\0\0\0\0\0\0hello");
    }

    #[test]
    fn a_short_or_unknown_record_is_refused() {
        for operation in all() {
            let mut record = Vec::new();
            operation.encode(&mut record);
            let body = match operation {
                Operation::Add { body, .. }
                | Operation::Again { body, .. }
                | Operation::Moved { body, .. }
                | Operation::Once { body, .. }
                | Operation::From { body, .. } => body.len(),
                _ => 0,
            };
            for length in 0..record.len() - body {
                assert!(
                    Operation::decode(&record[..length]).is_err(),
                    "{operation:?} cut to {length}"
                );
            }
        }
        let mut record = [13, 1, 0, 0].repeat(10);
        assert!(matches!(
            Operation::decode(&record),
            Err(RecordFault::Malformed(_))
        ));
        record[1] = 2;
        let fault = Operation::decode(&record).err();
        assert_eq!(fault, Some(RecordFault::Version(2)));
        assert_eq!(
            RecordFault::Version(2).to_string(),
            "version 2, this program reads 1"
        );
    }
}
