//! Requests in a journal of the state directory, `STATE/http/NAME`: one record each, numbered by the journal.
//!
//! All requests that arrive during a sync share the next one. Records are pruned when the flow has committed their
//! effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_flow::durable::escape;
use millstream_flow::error::Cause;
use millstream_flow::named::DROP_STATE;
use millstream_flow::source::{Position, Recording};
use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Reader, Retention, Sync, Writer};

use crate::group_sync::GroupSync;

/// Twice the largest body.
const SEGMENT_BYTES: u64 = 32 << 20;
/// The cursor at the oldest record that is needed.
const NEEDED: &str = "needed";

/// The journal of the requests of one source.
pub(super) struct RecordedRequests {
    writer: Writer,
    needed: Cursor,
    /// Whether a request must survive a loss of power.
    sync: bool,
    syncs: GroupSync,
}

impl RecordedRequests {
    /// Opens the journal of the source `name`; `forget` removes what an earlier run has left.
    pub(super) fn open(
        state_dir: &Path,
        name: &str,
        sync: bool,
        forget: bool,
    ) -> Result<Self, Cause> {
        let path = state_dir.join("http").join(escape(name));
        let named = |error: std::io::Error| format!("{}: {error}", path.display());
        if forget && path.exists() {
            std::fs::remove_dir_all(&path).map_err(named)?;
        }
        create_dir_durably(&path).map_err(named)?;
        // Its callers wait for syncs themselves, many for one.
        let options = Options {
            exclusive: true,
            record_bytes_max: SEGMENT_BYTES as u32,
            ..Options::default().with_segment_bytes(SEGMENT_BYTES)
        };
        let journal = Journal::open(&path, options.with_sync(Sync::Never))?;
        Ok(RecordedRequests {
            writer: journal.writer()?,
            needed: journal.cursor(NEEDED, CursorMode::Exclusive)?,
            sync,
            syncs: GroupSync::default(),
        })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.writer.journal().path()
    }

    /// The number of the next record.
    pub(super) fn next(&self) -> Result<u64, Cause> {
        Ok(self.writer.journal().next()?)
    }

    /// Returns the number of the first record that a run processes. `committed` is the position at the last commit.
    pub(super) fn resume(&self, committed: Option<u64>) -> Result<u64, Cause> {
        let first = self.writer.journal().first()?;
        let next = self.next()?;
        let from = committed.unwrap_or(first);
        if (first..=next).contains(&from) {
            return Ok(from);
        }
        Err(format!(
            "{}: it has the requests {first} to {next}, and the last commit is at {from}: the directory is of another flow, or its end was \
             lost in a power failure; drop the saved state of the source ({DROP_STATE}) to start again",
            self.path().display()
        )
        .into())
    }

    /// A reader at the record `first`.
    pub(super) fn reader(&self, first: u64) -> Result<Reader, Cause> {
        let mut reader = self.writer.journal().reader()?;
        reader.seek(first)?;
        Ok(reader)
    }

    /// The bytes of the records from `first`.
    pub(super) fn bytes_from(&self, first: u64) -> Result<u64, Cause> {
        let mut reader = self.reader(first)?;
        let mut bytes = 0;
        while let Some(record) = reader.next()? {
            bytes += record.body.len() as u64;
        }
        Ok(bytes)
    }

    /// Appends a record; the flow sees it at once.
    pub(super) fn append(&self, record: &[u8]) -> Result<u64, Cause> {
        Ok(self.writer.write(record)?)
    }

    /// Waits until the record `sequence` survives what it must.
    pub(super) async fn wait_durable(&self, sequence: u64) -> Result<(), Cause> {
        if self.sync {
            self.syncs.wait_durable(sequence).await
        } else {
            Ok(())
        }
    }

    /// Syncs whenever there are new records; ends after an error, which all later requests receive.
    pub(super) async fn keep_synced(self: Arc<Self>) {
        let this = Arc::clone(&self);
        let sync = Arc::new(move || this.writer.sync());
        self.syncs.keep_synced(sync).await;
    }
}

impl Recording for RecordedRequests {
    fn journal(&self) -> Option<Journal> {
        Some(self.writer.journal().clone())
    }
    fn sync(&self) -> Result<(), Cause> {
        self.writer.sync()?;
        Ok(())
    }

    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        let Some((_, position)) = positions.first() else {
            return Ok(());
        };
        let position = position.require_number()?.min(self.next()?);
        if position > self.needed.position()? {
            self.needed.set(position)?;
            self.writer.journal().prune(&Retention {
                keep_for_cursors: true,
                ..Retention::default()
            })?;
        }
        Ok(())
    }
}
