//! Requests in a journal of the state directory, `STATE/http/NAME`: one record each, numbered by the journal.
//!
//! All requests that arrive during a sync share the next one. Records are pruned when the flow has committed their effect.

use std::path::{Path, PathBuf};

use millstream_flow::durable::escape;
use millstream_flow::error::Cause;
use millstream_flow::source::{Position, Recording};
use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Reader, Retention, Sync, Writer};
use tokio::sync::{Notify, watch};

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
    unsynced: Notify,
    synced: watch::Sender<Synced>,
}

/// The progress of the syncs.
#[derive(Clone, Debug, Default)]
struct Synced {
    /// The number of the first record that may not survive a loss of power.
    before: u64,
    failed: Option<String>,
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
            unsynced: Notify::new(),
            synced: watch::Sender::default(),
        })
    }

    fn path(&self) -> PathBuf {
        self.writer.journal().path()
    }

    /// The number of the next record.
    pub(super) fn next(&self) -> Result<u64, Cause> {
        Ok(self.writer.journal().next()?)
    }

    /// Returns the number of the first record that a run processes. `committed` is the position at the last commit.
    pub(super) fn resume(&self, committed: Option<u64>) -> Result<u64, Cause> {
        let (first, next) = (self.writer.journal().first()?, self.next()?);
        let from = committed.unwrap_or(first);
        if (first..=next).contains(&from) {
            return Ok(from);
        }
        Err(format!(
            "{}: it has the requests {first} to {next}, and the last commit is at {from}: the directory is of another flow, or its end was \
             lost in a power failure; drop the saved state of the source (--drop-state) to start again",
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
        let (mut reader, mut bytes) = (self.reader(first)?, 0);
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
        if !self.sync {
            return Ok(());
        }
        self.unsynced.notify_one();
        let mut synced = self.synced.subscribe();
        let synced = synced.wait_for(|synced| synced.before > sequence || synced.failed.is_some());
        let synced = synced.await?.clone();
        match synced.failed {
            Some(error) if synced.before <= sequence => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Syncs whenever there are new records; ends after an error, which all later requests receive.
    pub(super) async fn keep_synced(self: std::sync::Arc<Self>) {
        loop {
            self.unsynced.notified().await;
            let this = std::sync::Arc::clone(&self);
            let synced = tokio::task::spawn_blocking(move || this.writer.sync()).await;
            let synced = synced.map_err(|error| error.to_string());
            match synced.and_then(|synced| synced.map_err(|error| error.to_string())) {
                Ok(before) => self.synced.send_modify(|synced| synced.before = before),
                Err(error) => {
                    self.synced
                        .send_modify(|synced| synced.failed = Some(error));
                    return;
                }
            }
        }
    }
}

impl Recording for RecordedRequests {
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
