//! Queues on disk: a folder for each, which is a journal that nobody else may write.
//!
//! The name of the folder is the name of the queue. What begins with a dot is none: a queue that is being removed is
//! renamed to such a name first, so that a crash leaves no half of it.
//!
//! The log of a queue is the same over every storage of the journal: that is how simulations crash queues.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_journal::storage::{Mapped, Storage as Disk};
use millstream_journal::{Cursor, Journal, Options, Reader, Retention, Share, Sync, Writer};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Log, Storage, Syncing};
use crate::error::Cause;
use crate::name;

/// Frames begin with 16 bytes and end at a multiple of 8.
const FRAME_BYTES: u64 = 16;
/// The cursor up to which a queue's records are no longer needed.
const CURSOR: &str = "consumed";
const REMOVED: &str = ".removed-";
const LOCK: &str = ".lock";
/// A record must fit into a segment several times, or much of each would stay empty.
const RECORDS_PER_SEGMENT_MIN: u64 = 8;
const SEGMENT_BYTES: u64 = 16 << 20;
/// What a record says about an item besides its bytes, and some room.
const RECORD_BYTES: u64 = 1 << 10;

/// A folder of queues.
#[derive(Clone, Debug)]
pub struct JournalStorage {
    folder: PathBuf,
    options: Options,
    /// Held as long as the queues are open: two servers would each take half of them.
    _lock: Arc<File>,
}

/// The journal of one queue.
pub struct JournalLog<D: Disk = Mapped> {
    journal: Journal<D>,
    writer: Writer<D>,
    reader: Reader<D>,
    cursor: Cursor<D>,
    first: u64,
    next: u64,
    bytes: u64,
}

impl<D: Disk> std::fmt::Debug for JournalLog<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "JournalLog({}, {}..{})",
            self.journal.path().display(),
            self.first,
            self.next
        )
    }
}

impl JournalStorage {
    /// The queues in `folder`, which is made if need be. No item will be longer than `item_bytes_max`.
    ///
    /// # Errors
    /// The folder cannot be made or read, or another process has it open.
    pub fn open(folder: impl Into<PathBuf>, item_bytes_max: usize) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another process serves these queues",
            ),
            other => other.into(),
        })?;
        let record_bytes_max = item_bytes_max as u64 + RECORD_BYTES;
        let segment_bytes =
            (record_bytes_max * RECORDS_PER_SEGMENT_MIN).next_multiple_of(SEGMENT_BYTES);
        let options = Options {
            // Queues say when; see `Log::sync`.
            sync: Sync::Never,
            segment_bytes,
            record_bytes_max: u32::try_from(record_bytes_max).unwrap_or(u32::MAX),
            exclusive: true,
            ..Options::default()
        };
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(JournalStorage {
            folder,
            options,
            _lock: Arc::new(lock),
        })
    }

    /// Where the queues are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Storage for JournalStorage {
    type Log = JournalLog;

    fn names(&self) -> Result<Vec<String>, Cause> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name::check(name.as_bytes()).is_ok()
                && entry.file_type()?.is_dir()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&mut self, name: &str) -> Result<JournalLog, Cause> {
        let folder = self.folder.join(name);
        let is_new = !folder.exists();
        let opened = Journal::open(&folder, self.options.clone())
            .map_err(Cause::from)
            .and_then(JournalLog::over);
        let log = match opened {
            // Half of a journal is no queue, and takes space on a disk that may be full.
            Err(cause) if is_new && folder.exists() => {
                return Err(match self.remove(name) {
                    Ok(()) => cause,
                    Err(left) => format!("{cause}; what was made of it stays: {left}").into(),
                });
            }
            opened => opened?,
        };
        if is_new {
            // The journal has synced what is in its folder, not that there is one.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(log)
    }

    fn remove(&mut self, name: &str) -> Result<(), Cause> {
        let from = self.folder.join(name);
        let to = (0u32..)
            .map(|n| self.folder.join(format!("{REMOVED}{n}")))
            .find(|to| !to.exists());
        let to = to.ok_or("too many queues are being removed")?;
        fs::rename(from, &to)?;
        Ok(fs::remove_dir_all(to)?)
    }
}

impl<D: Disk> JournalLog<D> {
    /// The log of a queue in this journal, which nobody else may write.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn over(journal: Journal<D>) -> Result<Self, Cause> {
        let (first, next) = (journal.first()?, journal.next()?);
        Ok(JournalLog {
            writer: journal.writer()?,
            reader: journal.reader()?,
            cursor: journal.cursor(CURSOR, Share::Exclusive)?,
            bytes: journal.info()?.bytes,
            journal,
            first,
            next,
        })
    }
}

impl<D: Disk> Syncing for Journal<D> {
    fn sync(&self) -> Result<(), Cause> {
        Journal::sync(self)?;
        Ok(())
    }
}

impl<D: Disk> Log for JournalLog<D> {
    type Syncing = Journal<D>;

    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<u64, Cause> {
        let position = self.writer.write(record)?;
        self.next = position + 1;
        self.bytes += FRAME_BYTES + (record.len() as u64).next_multiple_of(8);
        Ok(position)
    }

    #[inline]
    fn read(&mut self, position: u64) -> Result<&[u8], Cause> {
        if self.reader.position() != position {
            self.reader.seek(position)?;
        }
        match self.reader.next()? {
            Some(record) => Ok(record.body),
            None => Err(format!("there is no record {position}").into()),
        }
    }

    #[inline]
    fn first(&self) -> u64 {
        self.first
    }

    #[inline]
    fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    fn durable(&self) -> u64 {
        self.journal.durable()
    }

    fn sync(&mut self) -> Result<(), Cause> {
        self.writer.sync()?;
        Ok(())
    }

    fn syncing(&self) -> Journal<D> {
        self.journal.clone()
    }

    fn prune(&mut self, before: u64) -> Result<(), Cause> {
        if before <= self.first {
            return Ok(());
        }
        self.cursor.set(before)?;
        let pruned = self.journal.prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        if pruned.segments > 0 {
            self.first = pruned.first;
            self.bytes = self.bytes.saturating_sub(pruned.bytes);
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}
