//! The changes of all queues, as records of one journal.
//!
//! Numbers are little-endian. Byte 1 is the version of the format.
//!
//! ```text
//! byte   0      1      2             3      4..8  8..16      16..
//! BEGIN     1   1      0             0      0     0
//! QUEUE     2   1      name length   flags  0     first      lineage u128, segment_bytes u64, name
//! RECORD    3   1      name length   flags  0     position   name, record
//! TOMBSTONE 4   1      name length   0      0     position   name
//! PRUNE     5   1      name length   0      0     before     name
//! REMOVE    6   1      name length   0      0     0          name
//! END       7   1      0             0      0     0
//! BEAT      8   1      0             0      0     0
//! ```
//!
//! A *snapshot* is what all queues have: between BEGIN and END each queue stands with all its records, marked by bit 0
//! of the flags. Changes that are made meanwhile stand between these, without the mark.

use crate::error::Cause;
use crate::storage::Origin;

/// The version of the format.
const VERSION: u8 = 1;
const BEGIN: u8 = 1;
const QUEUE: u8 = 2;
const RECORD: u8 = 3;
const TOMBSTONE: u8 = 4;
const PRUNE: u8 = 5;
const REMOVE: u8 = 6;
const END: u8 = 7;
const BEAT: u8 = 8;
/// The flag of what belongs to a snapshot.
const OF_SNAPSHOT: u8 = 1;
const HEAD_BYTES: usize = 16;
const ORIGIN_BYTES: usize = 24;

/// A change of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// A snapshot begins.
    Begin,
    /// There is a queue, whose log has no record yet, or begins with the record `first`.
    Queue {
        name: &'a str,
        origin: Origin,
        first: u64,
        of_snapshot: bool,
    },
    /// A record was appended to the log of a queue.
    Record {
        name: &'a str,
        position: u64,
        record: &'a [u8],
        of_snapshot: bool,
    },
    /// A record of a queue got a tombstone.
    Tombstone { name: &'a str, position: u64 },
    /// The records before a position are not needed any more.
    Prune { name: &'a str, before: u64 },
    /// A queue was deleted.
    Remove { name: &'a str },
    /// The snapshot that began last is complete.
    End,
    /// Nothing has changed: a follower that has this record follows at present.
    Beat,
}

impl<'a> Change<'a> {
    /// Its length in bytes.
    pub(crate) fn length(&self) -> usize {
        let (name, rest) = match *self {
            Change::Queue { name, .. } => (name, ORIGIN_BYTES),
            Change::Record { name, record, .. } => (name, record.len()),
            Change::Tombstone { name, .. }
            | Change::Prune { name, .. }
            | Change::Remove { name } => (name, 0),
            Change::Begin | Change::End | Change::Beat => ("", 0),
        };
        HEAD_BYTES + name.len() + rest
    }

    /// Writes the change to `out`, which has its [length](Self::length).
    pub(crate) fn write(&self, out: &mut [u8]) {
        let (kind, flags, number, name): (u8, bool, u64, &str) = match *self {
            Change::Begin => (BEGIN, false, 0, ""),
            Change::Queue {
                name,
                first,
                of_snapshot,
                ..
            } => (QUEUE, of_snapshot, first, name),
            Change::Record {
                name,
                position,
                of_snapshot,
                ..
            } => (RECORD, of_snapshot, position, name),
            Change::Tombstone { name, position } => (TOMBSTONE, false, position, name),
            Change::Prune { name, before } => (PRUNE, false, before, name),
            Change::Remove { name } => (REMOVE, false, 0, name),
            Change::End => (END, false, 0, ""),
            Change::Beat => (BEAT, false, 0, ""),
        };
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        // A name has at most 250 bytes.
        put(&[kind, VERSION, name.len() as u8, u8::from(flags), 0, 0, 0, 0]);
        put(&number.to_le_bytes());
        if let Change::Queue { origin, .. } = self {
            put(&origin.lineage.to_le_bytes());
            put(&origin.segment_bytes.to_le_bytes());
        }
        put(name.as_bytes());
        if let Change::Record { record, .. } = self {
            put(record);
        }
    }

    /// Reads a record of the journal.
    ///
    /// # Errors
    /// What is not valid in it.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Cause> {
        let (head, rest) = body
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or("a change that is too short")?;
        let [kind, version, length, flags, ..] = *head;
        if version != VERSION {
            return Err(
                format!("a change of version {version}, this program reads {VERSION}").into(),
            );
        }
        let number = |bytes: &[u8]| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            u64::from_le_bytes(number)
        };
        let (origin, rest) = match kind {
            QUEUE => {
                let (origin, rest) = rest
                    .split_first_chunk::<ORIGIN_BYTES>()
                    .ok_or("a queue without an origin")?;
                let low = number(&origin[..8]);
                let high = number(&origin[8..16]);
                let origin = Origin {
                    lineage: u128::from(high) << 64 | u128::from(low),
                    segment_bytes: number(&origin[16..]),
                };
                (origin, rest)
            }
            _ => (Origin::default(), rest),
        };
        let number = number(&head[8..]);
        let (name, rest) = rest
            .split_at_checked(usize::from(length))
            .ok_or("a change whose name is cut off")?;
        let of_snapshot = flags & OF_SNAPSHOT != 0;
        let checked = || crate::name::check(name);
        Ok(match kind {
            BEGIN => Change::Begin,
            QUEUE => Change::Queue {
                name: checked()?,
                origin,
                first: number,
                of_snapshot,
            },
            RECORD => Change::Record {
                name: checked()?,
                position: number,
                record: rest,
                of_snapshot,
            },
            TOMBSTONE => Change::Tombstone {
                name: checked()?,
                position: number,
            },
            PRUNE => Change::Prune {
                name: checked()?,
                before: number,
            },
            REMOVE => Change::Remove { name: checked()? },
            END => Change::End,
            BEAT => Change::Beat,
            other => return Err(format!("a change of kind {other}, which there is not").into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_read_as_it_was_written() {
        let name = "jobs+audit";
        let record = |record, of_snapshot| Change::Record {
            name,
            position: 7,
            record,
            of_snapshot,
        };
        let all = [
            Change::Begin,
            Change::Queue {
                name,
                origin: Origin {
                    lineage: u128::MAX - 5,
                    segment_bytes: 16 << 20,
                },
                first: 3,
                of_snapshot: true,
            },
            record(b"some bytes", false),
            record(b"", true),
            Change::Tombstone { name, position: 7 },
            Change::Prune { name, before: 5 },
            Change::Remove { name },
            Change::End,
            Change::Beat,
        ];
        for change in all {
            let mut bytes = vec![0xff; change.length()];
            change.write(&mut bytes);
            assert_eq!(Change::read(&bytes).unwrap(), change);
            for cut in 0..bytes.len().min(HEAD_BYTES + name.len()) {
                // A part of it is refused, or is none of those with a name.
                let part = Change::read(&bytes[..cut]);
                assert!(
                    part.is_err() || !matches!(change, Change::Beat),
                    "{change:?} cut to {cut}"
                );
            }
        }
        assert!(Change::read(&[3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Change::read(&[9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Change::read(b"\x06\x01\x03\0\0\0\0\0\0\0\0\0\0\0\0\0../").is_err());
    }
}
