//! The ledger of a source: the ids of the items that it has taken, a note for each batch, in a journal of the flow's
//! state directory.
//!
//! ```text
//! note: u64 LE when the latest of the items was added (ms since 1970), then for each run of ids: gap, length
//! ```
//!
//! Gap and length are LEB128; the gap counts from the end of the previous run, and wraps.

use std::path::Path;
use std::sync::Arc;

use crate::Item;
use crate::embedded::Queue;
use millstream_flow::error::Cause;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Retention, Writer};

/// Notes are small, and each segment is preallocated.
const SEGMENT_BYTES: u64 = 1 << 20;
/// The cursor before which the removal of all items is durable.
const CURSOR: &str = "settled";

/// The ids of a batch, and the time at which the latest item of it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) ids: Vec<u64>,
    pub(super) added_by_ms: u64,
}

impl Note {
    pub(super) fn of(items: &[Item]) -> Self {
        Note {
            ids: items.iter().map(|item| item.id).collect(),
            added_by_ms: items.iter().map(|item| item.added_ms).max().unwrap_or(0),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = self.added_by_ms.to_le_bytes().to_vec();
        let mut end = 0u64;
        let runs = self
            .ids
            .chunk_by(|one, next| one.checked_add(1) == Some(*next));
        for run in runs {
            put(&mut out, run[0].wrapping_sub(end));
            put(&mut out, run.len() as u64);
            end = run[0].wrapping_add(run.len() as u64);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (added, mut rest) = bytes.split_first_chunk()?;
        let mut ids = Vec::new();
        let mut end = 0u64;
        while !rest.is_empty() {
            let first = end.wrapping_add(take(&mut rest)?);
            let length = take(&mut rest)?;
            if length > u64::from(u32::MAX) {
                return None;
            }
            ids.extend((0..length).map(|n| first.wrapping_add(n)));
            end = first.wrapping_add(length);
        }
        Some(Note {
            ids,
            added_by_ms: u64::from_le_bytes(*added),
        })
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

/// The ledger of one queue.
pub(super) struct Ledger {
    writer: Writer,
    cursor: Cursor,
}

impl Ledger {
    /// Opens a ledger, and rolls the queue back to the position of the last commit; at the first run there is none.
    /// Returns the position of the next note.
    pub(super) fn resume(
        path: &Path,
        queue: &Queue,
        committed: Option<u64>,
    ) -> Result<(Arc<Self>, u64), Cause> {
        let options = Options {
            exclusive: true,
            segment_bytes: SEGMENT_BYTES,
            record_bytes_max: (SEGMENT_BYTES / 8) as u32,
            ..Options::default()
        };
        let journal = Journal::open(path, options)?;
        let cursor = journal.cursor(CURSOR, CursorMode::Exclusive)?;
        let from = cursor.position()?.max(journal.first()?);
        let until = committed.unwrap_or(from);
        let mut reader = journal.reader()?;
        for position in from..until {
            let record = reader.read(position)?;
            let note = Note::decode(record.body)
                .ok_or_else(|| format!("{}: note {position} cannot be read", path.display()))?;
            queue.confirm_lent(note.ids, note.added_by_ms)?;
        }
        drop(reader);
        journal.cut(until)?;
        let writer = journal.writer()?;
        Ok((Arc::new(Ledger { writer, cursor }), until))
    }

    /// Appends a note. Returns its position.
    pub(super) fn write(&self, note: &Note) -> Result<u64, Cause> {
        Ok(self.writer.write(&note.encode())?)
    }

    /// Makes all notes durable.
    pub(super) fn sync(&self) -> Result<(), Cause> {
        self.writer.sync()?;
        Ok(())
    }

    /// Prunes the notes before this position.
    pub(super) fn prune(&self, position: u64) -> Result<(), Cause> {
        self.cursor.set(position)?;
        self.writer.journal().prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::embedded::{PutOptions, Queues};

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        for ids in [
            vec![],
            vec![0],
            vec![5, 6, 7, 9, 11, 12],
            vec![7, 3, 4, u64::MAX, 0],
            (1000..2000).collect(),
        ] {
            let note = Note {
                ids,
                added_by_ms: 1_700_000_000_123,
            };
            let bytes = note.encode();
            assert_eq!(Note::decode(&bytes), Some(note.clone()));
            for cut in 0..bytes.len() {
                assert_ne!(Note::decode(&bytes[..cut]), Some(note.clone()));
            }
        }
        assert_eq!(Note::decode(&[255; 40]), None);
    }

    #[test]
    fn a_resume_removes_what_is_committed_and_leaves_the_rest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger");
        let open = || {
            let queues = Queues::attach(folder.path().join("queues"));
            queues
                .and_then(|queues| queues.queue("q"))
                .expect("it is there")
        };
        let queue = open();
        let items: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        queue
            .put_many(&items, &PutOptions::default())
            .expect("there is room");
        let (ledger, first) = Ledger::resume(&path, &queue, None).expect("it begins");
        for position in 0..3 {
            let mut batch = Vec::new();
            queue.lend(2, 100, &mut batch).expect("it is open");
            assert_eq!(ledger.write(&Note::of(&batch)).ok(), Some(first + position));
        }
        // The process dies between the commit of two batches and their removal.
        drop((queue, ledger));
        for _ in 0..2 {
            let queue = open();
            let (ledger, next) = Ledger::resume(&path, &queue, Some(2)).expect("it resumes");
            assert_eq!((next, queue.len().ok()), (2, Some(5)));
            assert_eq!(
                queue.peek().ok().flatten().map(|item| item.body[0]),
                Some(b'4')
            );
            drop(ledger);
        }
        let queue = open();
        let (ledger, _) = Ledger::resume(&path, &queue, Some(2)).expect("it resumes");
        ledger.prune(2).expect("it is writable");
        drop(ledger);
        let behind = Ledger::resume(&path, &queue, Some(7));
        assert!(behind.is_err(), "notes are missing");
    }
}
