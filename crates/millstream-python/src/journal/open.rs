//! The parts of an open journal: the engine's journal, its writer, and a reader for single records.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use millstream_journal::{self as engine, Error, Writer};

use super::mapped_segments::MappedSegments;

/// A journal while it is open.
pub(super) struct Open {
    pub(super) journal: engine::Journal,
    pub(super) writer: OnceLock<Writer>,
    /// For single records.
    pub(super) reader: Mutex<Option<engine::Reader>>,
    pub(super) segments: Arc<MappedSegments>,
    pub(super) closed: Arc<AtomicBool>,
}

impl Open {
    pub(super) fn writer(&self) -> Result<&Writer, Error> {
        if let Some(writer) = self.writer.get() {
            return Ok(writer);
        }
        let writer = self.journal.writer()?;
        Ok(self.writer.get_or_init(|| writer))
    }

    pub(super) fn read(&self, sequence: u64) -> Result<engine::PinnedRecord, Error> {
        let mut kept = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = match &mut *kept {
            Some(reader) => reader,
            None => kept.insert(self.journal.reader()?),
        };
        if reader.position() != sequence {
            reader.seek(sequence)?;
        }
        reader.next_pinned()?.ok_or_else(|| Error::NotYet {
            path: self.journal.path(),
            sequence,
            next: sequence,
        })
    }
}
