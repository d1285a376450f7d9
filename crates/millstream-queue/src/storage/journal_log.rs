//! The log of a queue in a journal that no other process may write.
//!
//! It is generic over the storage of the journal, so that simulations can crash queues. The journal of a *suspended*
//! log is closed, and opened again at the next use. An existing log is first read through a read-only journal: it
//! gets a writer at its first use.
//!
//! A queue can be emptied on a full disk. The removal of an item is a record while there is space. Without space, the
//! item's own record gets a tombstone, in a record set whose space is allocated before the record is appended.
//! Removed records let segments be pruned, the last one too, since a spare segment is reserved for the next.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_journal::storage::{Mapped, Storage as Disk};
use millstream_journal::{
    Cursor, CursorMode, Error as Fault, Identity, Journal, Options, Reader, RecordSet, Retention,
    Writer, sync_closed,
};

use super::makers::{Makers, Making};
use super::removals::Removals;
use super::{Log, Syncing};
use crate::error::Cause;

/// Frames begin with 16 bytes and end at a multiple of 8.
const FRAME_BYTES: u64 = 16;
/// The cursor before which a queue's records are not needed.
const CURSOR: &str = "consumed";
/// The record set of tombstones.
const TOMBSTONES: &str = "struck";
/// A log of this size has a spare segment. A smaller one holds too little for it to matter.
const SPARE_FROM_BYTES: u64 = 24 << 10;
/// A segment up to this size is kept when no record in it is needed.
const KEPT_BYTES: u64 = 64 << 10;

/// The journal of one queue.
pub struct JournalLog<D: Disk = Mapped> {
    live: Option<LiveJournal<D>>,
    /// The read-only journal of a log that was opened and is read for the first time.
    read_only: Option<ReadOnlyJournal<D>>,
    reopener: Option<Reopener<D>>,
    /// The journal of a new log, while it is being created.
    making: Option<Arc<Making<LiveJournal<D>>>>,
    /// Why it could not be created: the next use says it.
    refused: Option<Cause>,
    exists: bool,
    first: u64,
    next: u64,
    bytes: u64,
    /// The watermark at the time when the journal was closed.
    durable: u64,
    /// The disk space, if known.
    disk: Option<DiskBytes>,
}

/// What the log of a copy has from that of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The lineage: a log of another one is that of another queue of the name.
    pub lineage: u128,
    /// The size of a segment, at most: it limits the length of a record.
    pub segment_bytes: u64,
}

/// The disk space of a log, valid until one of its files is created or removed.
#[derive(Clone, Copy)]
struct DiskBytes {
    bytes: u64,
    /// The value of [`Journal::file_changes`] of the open journal.
    changes: u64,
}

/// A journal that is only read: it has no thread and no lock, and creates nothing on disk.
struct ReadOnlyJournal<D: Disk> {
    reader: Reader<D>,
    tombstones: BTreeSet<u64>,
}

/// A journal that is open to write.
pub(super) struct LiveJournal<D: Disk> {
    journal: Journal<D>,
    writer: Writer<D>,
    reader: Reader<D>,
    cursor: Cursor<D>,
    tombstones: RecordSet<D>,
    /// The size of the log at which a spare segment is reserved; `u64::MAX` while there is one.
    spare_from: u64,
    is_full: bool,
    was_full: bool,
    /// Shared with the handles that sync the journal.
    in_use: Arc<()>,
    /// Counts the open logs, this one included.
    _count: Option<OpenCount>,
}

/// Opens a journal; `true` allows to create it.
pub(super) type Opener<D> = Arc<dyn Fn(bool) -> Result<LiveJournal<D>, Cause> + Send + Sync>;

/// How a log is opened.
pub(super) struct Reopener<D: Disk> {
    pub(super) folder: PathBuf,
    pub(super) open: Opener<D>,
    pub(super) makers: Option<Makers<LiveJournal<D>>>,
    /// The directories that are being removed: a full disk has room when they are gone.
    pub(super) removals: Arc<Removals>,
    /// The number of open logs.
    pub(super) open_logs: Arc<AtomicUsize>,
}

struct OpenCount(Arc<AtomicUsize>);

impl OpenCount {
    fn one(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        OpenCount(Arc::clone(counter))
    }
}

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Syncs the journal of a queue.
#[derive(Clone)]
pub struct JournalSyncing<D: Disk = Mapped>(Option<(Journal<D>, Arc<()>)>);

impl<D: Disk> Syncing for JournalSyncing<D> {
    fn sync(&self) -> Result<(), Cause> {
        if let Some((journal, _)) = &self.0 {
            journal.sync()?;
        }
        Ok(())
    }
}

impl<D: Disk> std::fmt::Debug for JournalLog<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JournalLog({}..{})", self.first, self.next)
    }
}

fn is_missing(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(Fault::NotFound { .. }))
}

impl<D: Disk> LiveJournal<D> {
    pub(super) fn over(journal: Journal<D>) -> Result<Self, Cause> {
        let writer = journal.writer()?;
        let has_spare = writer.reserved()?;
        Ok(LiveJournal {
            writer,
            reader: journal.reader()?,
            cursor: journal.cursor(CURSOR, CursorMode::Exclusive)?,
            tombstones: journal.record_set(TOMBSTONES)?,
            spare_from: if has_spare {
                u64::MAX
            } else {
                SPARE_FROM_BYTES
            },
            is_full: false,
            was_full: false,
            in_use: Arc::new(()),
            _count: None,
            journal,
        })
    }

    /// Whether a record can be appended at `next` that may get a tombstone later.
    #[inline]
    fn is_prepared(&self, next: u64, bytes: u64) -> bool {
        bytes < self.spare_from && self.tombstones.has_room(next)
    }

    #[cold]
    fn prepare(&mut self, next: u64, bytes: u64) -> Result<(), Fault> {
        self.tombstones.make_room(next)?;
        if bytes >= self.spare_from {
            self.writer.reserve()?;
            self.spare_from = u64::MAX;
        }
        Ok(())
    }

    fn append(&mut self, next: u64, bytes: u64, record: &[u8]) -> Result<u64, Fault> {
        if !self.is_prepared(next, bytes) {
            self.prepare(next, bytes)?;
        }
        self.writer.write(record)
    }

    /// Checks whether the spare segment was used. When that is unknown, the next append reserves one or reports why
    /// not.
    fn check_spare(&mut self) {
        match self.writer.reserved() {
            Ok(true) => {}
            Ok(false) | Err(_) => self.spare_from = SPARE_FROM_BYTES,
        }
    }
}

impl JournalLog {
    /// The log that this opens. A new log is created with its first record.
    pub(super) fn opened_by(reopener: Reopener<Mapped>, exists: bool) -> Result<Self, Cause> {
        let mut log = JournalLog {
            live: None,
            read_only: None,
            reopener: Some(reopener),
            making: None,
            refused: None,
            exists,
            first: 0,
            next: 0,
            bytes: 0,
            durable: 0,
            disk: None,
        };
        if exists {
            match log.open_read_only() {
                // The process was killed while it created the journal: that is done again.
                Err(cause) if is_missing(&cause) => {
                    log.exists = false;
                    log.create()?;
                }
                opened => opened?,
            }
        }
        Ok(log)
    }

    /// The lineage of the journal, which tells this queue from others of its name.
    pub(crate) fn lineage(&mut self) -> Result<u128, Cause> {
        if let Some(live) = &self.live {
            return Ok(live.journal.lineage()?);
        }
        let reopener = self.reopener.as_ref().ok_or("the log is closed")?;
        Ok(Identity::of(&reopener.folder)?.lineage)
    }

    /// What a copy of the log has from it.
    pub(crate) fn origin(&mut self) -> Result<Origin, Cause> {
        let info = match (&self.live, &self.reopener) {
            (Some(live), _) => live.journal.info()?,
            (None, Some(closed)) => Journal::open(&closed.folder, Options::read_only())?.info()?,
            (None, None) => return Err("the log is closed".into()),
        };
        Ok(Origin {
            lineage: self.lineage()?,
            segment_bytes: info.segment_bytes,
        })
    }

    /// Puts a tombstone on a record, whether or not the disk is full.
    pub(crate) fn set_tombstone(&mut self, position: u64) -> Result<(), Cause> {
        Ok(self.live()?.tombstones.insert(position)?)
    }

    /// Opens the journal to read, and learns its range.
    fn open_read_only(&mut self) -> Result<(), Cause> {
        let reopener = self.reopener.as_ref().ok_or("the log is closed")?;
        let journal = Journal::open(&reopener.folder, Options::read_only())?;
        // Damage is found now, not by the first request.
        journal.identity()?;
        let info = journal.info()?;
        (self.first, self.next, self.bytes) = (info.first, info.next, info.bytes);
        self.durable = info.durable;
        self.read_only = Some(ReadOnlyJournal {
            tombstones: journal.records_in_set(TOMBSTONES)?.into_iter().collect(),
            reader: journal.reader()?,
        });
        Ok(())
    }
}

impl<D: Disk> JournalLog<D> {
    /// The log of a queue in this journal, which no other process may write.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn over(journal: Journal<D>) -> Result<Self, Cause> {
        let mut log = JournalLog {
            live: None,
            read_only: None,
            reopener: None,
            making: None,
            refused: None,
            exists: true,
            first: 0,
            next: 0,
            bytes: 0,
            durable: 0,
            disk: None,
        };
        log.adopt(LiveJournal::over(journal)?)?;
        Ok(log)
    }

    fn adopt(&mut self, live: LiveJournal<D>) -> Result<(), Cause> {
        let info = live.journal.info()?;
        (self.first, self.next, self.bytes) = (info.first, info.next, info.bytes);
        self.live = Some(live);
        self.exists = true;
        Ok(())
    }

    fn open(&self) -> Result<LiveJournal<D>, Cause> {
        let reopener = self.reopener.as_ref().ok_or("the log is closed")?;
        (reopener.open)(!self.exists)
    }

    /// The open journal; a suspended or new log is opened first.
    #[inline]
    fn live(&mut self) -> Result<&mut LiveJournal<D>, Cause> {
        if self.live.is_none() {
            self.reopen()?;
        }
        Ok(self.live.as_mut().ok_or("the log is closed")?)
    }

    #[cold]
    fn reopen(&mut self) -> Result<(), Cause> {
        (self.read_only, self.disk) = (None, None);
        if let Some(cause) = self.refused.take() {
            return Err(cause);
        }
        let mut live = match self.making.take() {
            Some(making) => making.wait()?,
            None => self.open()?,
        };
        let open_logs = self.reopener.as_ref().map(|reopener| &reopener.open_logs);
        live._count = open_logs.map(OpenCount::one);
        if !self.exists {
            return self.adopt(live);
        }
        let first = live.journal.first()?;
        let next = live.journal.next()?;
        if (first, next) != (self.first, self.next) {
            let what = format!(
                "{}: records {}..{} were here, and now there are {first}..{next}",
                live.journal.path().display(),
                self.first,
                self.next
            );
            return Err(what.into());
        }
        self.live = Some(live);
        Ok(())
    }

    /// Waits until deleted queues are gone from the disk. Returns whether there were any.
    #[cold]
    fn makes_room(&self) -> bool {
        let reopener = self.reopener.as_ref();
        reopener.is_some_and(|reopener| reopener.removals.wait())
    }

    fn appended(&mut self, position: u64, record: &[u8]) -> u64 {
        self.next = position + 1;
        self.bytes += FRAME_BYTES + (record.len() as u64).next_multiple_of(8);
        position
    }
}

impl<D: Disk> Log for JournalLog<D> {
    type Syncing = JournalSyncing<D>;

    #[inline]
    fn append(&mut self, record: &[u8]) -> Result<u64, Cause> {
        if self.live.is_none() {
            self.reopen()?;
        }
        let next = self.next;
        let bytes = self.bytes;
        let live = self.live()?;
        match live.append(next, bytes, record) {
            Ok(position) => {
                live.is_full = false;
                Ok(self.appended(position, record))
            }
            // What deleted queues have held is free when this returns: once.
            Err(Fault::DiskFull { .. }) if self.makes_room() => self.append(record),
            Err(fault) => {
                let live = self.live()?;
                live.is_full = matches!(fault, Fault::DiskFull { .. });
                live.was_full |= live.is_full;
                Err(fault.into())
            }
        }
    }

    fn append_reserved(&mut self, record: &[u8]) -> Result<u64, Cause> {
        let live = self.live()?;
        let position = match live.writer.write(record) {
            Err(Fault::DiskFull { .. }) => {
                (live.is_full, live.was_full) = (true, true);
                let written = live.writer.write_reserved(record);
                live.check_spare();
                written?
            }
            written => written?,
        };
        Ok(self.appended(position, record))
    }

    #[inline]
    fn read(&mut self, position: u64) -> Result<&[u8], Cause> {
        if self.live.is_none() && self.read_only.is_none() {
            self.reopen()?;
        }
        let live = self.live.as_mut().map(|live| &mut live.reader);
        let read_only = self
            .read_only
            .as_mut()
            .map(|read_only| &mut read_only.reader);
        let reader = live.or(read_only).ok_or("the log is closed")?;
        if reader.position() != position {
            reader.seek(position)?;
        }
        match reader.next()? {
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
        match &self.live {
            Some(live) => live.journal.durable(),
            None => self.durable,
        }
    }

    fn sync(&mut self) -> Result<(), Cause> {
        if let Some(live) = &self.live {
            live.writer.sync()?;
        } else if self.durable < self.next
            && let Some(reopener) = &self.reopener
        {
            // To open it for a sync would take many times as long.
            sync_closed(&reopener.folder)?;
            self.durable = self.next;
        }
        Ok(())
    }

    fn syncing(&self) -> JournalSyncing<D> {
        let shared = |live: &LiveJournal<D>| (live.journal.clone(), Arc::clone(&live.in_use));
        JournalSyncing(self.live.as_ref().map(shared))
    }

    fn prune(&mut self, before: u64) -> Result<(), Cause> {
        if before <= self.first {
            return Ok(());
        }
        let live = self.live()?;
        live.cursor.set(before)?;
        let pruned = live.journal.prune(&Retention {
            keep_for_cursors: true,
            ..Retention::default()
        })?;
        if pruned.segments > 0 {
            live.is_full = false;
            live.tombstones.forget_before(pruned.first)?;
            self.first = pruned.first;
            self.bytes = self.bytes.saturating_sub(pruned.frame_bytes);
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_full(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_full)
    }

    #[inline]
    fn was_full(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.was_full)
    }

    fn tombstone(&mut self, position: u64) -> Result<(), Cause> {
        let live = self.live()?;
        if live.is_full {
            Ok(live.tombstones.insert(position)?)
        } else {
            Err("only a full disk makes tombstones necessary".into())
        }
    }

    fn has_tombstone(&self, position: u64) -> bool {
        if let Some(read_only) = &self.read_only {
            return read_only.tombstones.contains(&position);
        }
        let live = self.live.as_ref();
        live.is_some_and(|live| live.tombstones.contains(position))
    }

    fn roll_segment(&mut self) -> Result<bool, Cause> {
        let live = self.live()?;
        if live.writer.segment_bytes()? <= KEPT_BYTES {
            return Ok(false);
        }
        live.writer.begin_segment()?;
        live.was_full = false;
        live.check_spare();
        Ok(true)
    }

    fn suspend(&mut self) -> bool {
        let Some(live) = self.live.as_ref().filter(|_| self.reopener.is_some()) else {
            return false;
        };
        // A journal whose sync has failed must not be reopened as if it had not.
        if Arc::strong_count(&live.in_use) > 1 || live.journal.is_stopped() {
            return false;
        }
        self.durable = live.journal.durable();
        (self.live, self.disk) = (None, None);
        true
    }

    fn is_suspended(&self) -> bool {
        self.live.is_none() || self.reopener.is_none()
    }

    fn exists(&self) -> bool {
        self.exists
    }

    fn begin_create(&mut self) -> bool {
        if self.exists || self.live.is_some() || self.refused.is_some() {
            return false;
        }
        match (&self.making, &self.reopener) {
            (None, Some(reopener)) => {
                let Some(makers) = &reopener.makers else {
                    return false;
                };
                let open = Arc::clone(&reopener.open);
                self.making = Some(makers.begin(move || open(true)));
                true
            }
            (Some(making), _) if making.is_done() => {
                self.refused = self.reopen().err();
                false
            }
            (making, _) => making.is_some(),
        }
    }

    fn is_being_created(&self) -> bool {
        self.making.is_some()
    }

    fn create(&mut self) -> Result<(), Cause> {
        self.live().map(drop)
    }

    fn end_restore(&mut self) {
        self.read_only = None;
    }

    fn disk_bytes(&mut self) -> u64 {
        let folder = match &self.reopener {
            Some(reopener) if self.exists => &reopener.folder,
            Some(_) => return 0,
            None => return self.bytes,
        };
        let journal = self.live.as_ref().map(|live| &live.journal);
        let changes = journal.map_or(0, Journal::file_changes);
        match self.disk {
            Some(disk) if disk.changes == changes => disk.bytes,
            _ => {
                let bytes = held_by(folder);
                self.disk = Some(DiskBytes { bytes, changes });
                bytes
            }
        }
    }
}

impl<D: Disk> Drop for JournalLog<D> {
    fn drop(&mut self) {
        // Its directory may be removed next, or opened by another log.
        if let Some(making) = self.making.take() {
            let _nobody_needs_it = making.wait();
        }
    }
}

/// The disk space of a directory and all in it. A file that is removed meanwhile does not count.
fn held_by(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata(folder).map_or(0, |folder| folder.blocks() * 512);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return own;
    };
    let held = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => held_by(&entry.path()),
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    });
    own + held.sum::<u64>()
}
