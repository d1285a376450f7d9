//! Named cursors: positions that outlive their readers.
//!
//! The position survives the death of processes at once, and a loss of power after [`Cursor::sync`]. Without a sync, a
//! loss of power may leave an earlier position, never one that the cursor did not have. The [file](super::cursor_file)
//! of a cursor has two slots, so that a move that is interrupted leaves the position before it.

use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::cursor_file::{self, BYTES, CursorInfo, MAGIC, Slot};
use crate::error::{Error, Result};
use crate::format::admission;
use crate::journal::Journal;
use crate::read::bookmark::Bookmark;
use crate::storage::{Access, Hold, Mapped, Region, Storage};

/// Whether a cursor may be open more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorMode {
    /// A second opening is an error.
    Exclusive,
    /// Any number of openings that agreed to share; the last one to move it wins.
    Shared,
}

/// A named position in a journal, to be read and not moved. Any number of processes may have it open beside a
/// [`Cursor`], and it keeps none of them from removing the cursor.
#[doc(hidden)] // For the other crates of Millstream.
pub struct CursorView<S: Storage = Mapped> {
    journal: Journal<S>,
    name: String,
    region: S::Region,
    /// Whether this opening has moved the cursor, or has found its record in the journal.
    is_confirmed: AtomicBool,
}

/// A named position in a journal.
pub struct Cursor<S: Storage = Mapped> {
    view: CursorView<S>,
    _lock: S::Lock,
}

impl<S: Storage> fmt::Debug for CursorView<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CursorView({:?} at {:?})", self.name, self.position())
    }
}

impl<S: Storage> fmt::Debug for Cursor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?} at {:?})", self.view.name, self.position())
    }
}

impl<S: Storage> CursorView<S> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number of the record to read next. After a loss of power that took records, this is the journal's
    /// end at most.
    ///
    /// # Errors
    /// As for [`Cursor::position`].
    pub fn position(&self) -> Result<u64> {
        self.confirmed(self.stored()?.bookmark)
    }

    /// The position, if it is that of a follower's copy that was [admitted](Cursor::admit).
    ///
    /// # Errors
    /// As for [`Cursor::position`].
    #[inline]
    pub fn counted(&self) -> Result<Option<u64>> {
        let slot = self.stored()?;
        // After the slot: what the copy that was admitted meanwhile has stored is in a later slot.
        if !admission::read(&self.region).counts(slot.copy) {
            return Ok(None);
        }
        self.confirmed(slot.bookmark).map(Some)
    }

    fn confirmed(&self, stored: Bookmark) -> Result<u64> {
        let core = self.journal.core();
        let next = core.checked(core.published())?;
        if stored.next <= next && !self.is_confirmed.load(Relaxed) {
            self.journal.confirm(stored)?;
            self.is_confirmed.store(true, Relaxed);
        }
        Ok(stored.next.min(next))
    }

    /// What the file says.
    fn stored(&self) -> Result<Slot> {
        let stored = cursor_file::read(self.journal.core(), &self.name, &self.region);
        self.check()?;
        stored
    }

    /// An error if the file system has failed the cursor's own file; the journal may be unaffected.
    fn check(&self) -> Result<()> {
        match self.region.fault() {
            Some(fault) => Err(fault.into()),
            None => Ok(()),
        }
    }
}

impl<S: Storage> Cursor<S> {
    pub(crate) fn open(journal: Journal<S>, name: &str, share: CursorMode) -> Result<Self> {
        let core = journal.core();
        if core.options.read_only {
            return Err(Error::ReadOnly { path: core.path() });
        }
        let file = cursor_file::file(name)?;
        let failed = |source| Error::Io {
            verb: "open",
            path: core.storage.path(&file),
            source,
        };
        let hold = match share {
            CursorMode::Exclusive => Hold::Exclusive,
            CursorMode::Shared => Hold::Shared,
        };
        let Some(lock) = core.storage.lock(&file, hold).map_err(failed)? else {
            return Err(Error::CursorInUse {
                path: core.path(),
                name: name.to_owned(),
            });
        };
        let region = core.storage.create(&file, BYTES).map_err(failed)?;
        let cursor = Cursor {
            view: CursorView {
                name: name.to_owned(),
                region,
                is_confirmed: AtomicBool::new(false),
                journal: journal.clone(),
            },
            _lock: lock,
        };
        if cursor.region().load(0) == 0 {
            cursor.begin(core.first()?).map_err(failed)?;
        }
        cursor.view.stored()?;
        Ok(cursor)
    }

    /// A new cursor begins at the first record.
    fn begin(&self, first: u64) -> std::io::Result<()> {
        let checksum = None;
        self.store(
            Bookmark {
                next: first,
                checksum,
            },
            None,
        );
        self.region().publish(0, MAGIC);
        self.region().sync(0, BYTES)?;
        self.journal().core().storage.sync_names()
    }

    pub(crate) fn journal(&self) -> &Journal<S> {
        &self.view.journal
    }

    pub(crate) fn region(&self) -> &S::Region {
        &self.view.region
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.view.name
    }

    /// The sequence number of the record to read next. After a loss of power that took records, this is the journal's
    /// end at most.
    ///
    /// # Errors
    /// [`Error::Damage`] when neither slot is sound. [`Error::Lost`] when the journal has lost the record before the
    /// position since the cursor was moved: [`set`](Self::set) moves it to where its reader is to resume.
    pub fn position(&self) -> Result<u64> {
        self.view.position()
    }

    /// The position, if it is that of a follower's copy that was [admitted](Self::admit).
    ///
    /// # Errors
    /// As for [`position`](Self::position).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn counted(&self) -> Result<Option<u64>> {
        self.view.counted()
    }

    /// Move the cursor, in any direction.
    ///
    /// # Errors
    /// [`Error::NotYet`] after the end of the journal.
    pub fn set(&self, sequence: u64) -> Result<()> {
        self.move_to(sequence, None)
    }

    /// Move the cursor, in any direction: the position is that of a follower's copy with this [own
    /// number](crate::Identity::own).
    ///
    /// # Errors
    /// [`Error::NotYet`] after the end of the journal.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn set_for(&self, copy: u64, sequence: u64) -> Result<()> {
        self.move_to(sequence, Some(copy))
    }

    fn move_to(&self, sequence: u64, copy: Option<u64>) -> Result<()> {
        self.journal().core().check_fork()?;
        let bookmark = match self.journal().bookmark(sequence) {
            Err(Error::Pruned { .. }) => Bookmark {
                next: sequence,
                checksum: None,
            },
            found => found?,
        };
        self.store(bookmark, copy);
        self.view.check()
    }

    /// Make the position survive a loss of power.
    ///
    /// # Errors
    /// An error of the system.
    pub fn sync(&self) -> Result<()> {
        self.synced(self.region().sync(0, BYTES))
    }

    pub(crate) fn synced(&self, outcome: std::io::Result<()>) -> Result<()> {
        cursor_file::synced(self.journal().core(), self.name(), outcome)
    }

    fn store(&self, bookmark: Bookmark, copy: Option<u64>) {
        cursor_file::store(self.region(), bookmark, copy);
        self.view.is_confirmed.store(true, Relaxed);
    }
}

impl<S: Storage> Journal<S> {
    /// The cursor of that name, at the first record when it is new.
    ///
    /// # Errors
    /// [`Error::CursorName`]; [`Error::CursorInUse`] unless all openings of the cursor share it; [`Error::Damage`].
    ///
    /// ```
    /// use millstream_journal::{CursorMode, Journal, Options};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("jobs");
    /// let journal = Journal::open(&path, Options::default())?;
    /// journal.writer()?.append_many(["a", "b", "c"])?;
    /// let cursor = journal.cursor("worker", CursorMode::Exclusive)?;
    /// let mut reader = journal.reader()?;
    /// reader.seek(cursor.position()?)?;
    /// while let Some(record) = reader.next()? {
    ///     cursor.set(record.sequence + 1)?; // after the work is done: each job at least once
    /// }
    /// assert_eq!(cursor.position()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cursor(&self, name: &str, share: CursorMode) -> Result<Cursor<S>> {
        Cursor::open(self.clone(), name, share)
    }

    /// The cursor of that name as it is, to be read; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::CursorName`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn cursor_view(&self, name: &str) -> Result<Option<CursorView<S>>> {
        let region = cursor_file::view(&self.core().storage, name, Access::Read);
        let region = self.core().checked(region)?;
        Ok(region.map(|region| CursorView {
            journal: self.clone(),
            name: name.to_owned(),
            region,
            is_confirmed: AtomicBool::new(false),
        }))
    }

    /// Whether a process has the cursor of that name open; `None` when this process may not know.
    ///
    /// # Errors
    /// [`Error::CursorName`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_cursor_open(&self, name: &str) -> Result<Option<bool>> {
        let file = cursor_file::file(name)?;
        match self.core().storage.is_locked(&file) {
            Ok(is_locked) => Ok(Some(is_locked)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(false)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
            Err(source) => Err(Error::Io {
                verb: "lock",
                path: self.core().storage.path(&file),
                source,
            }),
        }
    }

    /// All cursors, by name.
    ///
    /// # Errors
    /// [`Error::Damage`] in one of them; an error of the system.
    pub fn cursors(&self) -> Result<Vec<CursorInfo>> {
        self.core().checked(cursor_file::list(self.core()))
    }

    /// Remove a cursor, so that it no longer prevents pruning.
    ///
    /// # Errors
    /// [`Error::CursorInUse`] while the cursor is open; an error of the system.
    pub fn remove_cursor(&self, name: &str) -> Result<()> {
        if self.core().options.read_only {
            return Err(Error::ReadOnly { path: self.path() });
        }
        cursor_file::remove(self.core(), name)
    }
}
