//! Named cursors: positions that outlive their readers.
//!
//! The position survives the death of processes at once, and a loss of power after [`Cursor::sync`]. Without a sync, a loss of power may
//! leave an earlier position, never one that the cursor did not have. The [file](super::cursor_file) of a cursor has two slots, so that a
//! move that is interrupted leaves the position before it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::cursor_file::{self, BYTES, CursorInfo, MAGIC};
use crate::error::{Error, Result};
use crate::journal::Journal;
use crate::read::bookmark::Bookmark;
use crate::storage::{Hold, Mapped, Region, Storage};

/// Whether a cursor may be open more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorMode {
    /// A second opening is an error.
    Exclusive,
    /// Any number of openings that agreed to share; the last one to move it wins.
    Shared,
}

/// A named position in a journal.
pub struct Cursor<S: Storage = Mapped> {
    journal: Journal<S>,
    name: String,
    region: S::Region,
    /// Whether this opening has moved the cursor, or has found its record in the journal.
    is_confirmed: AtomicBool,
    _lock: S::Lock,
}

impl<S: Storage> fmt::Debug for Cursor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?} at {:?})", self.name, self.position())
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
            name: name.to_owned(),
            region,
            is_confirmed: AtomicBool::new(false),
            _lock: lock,
            journal: journal.clone(),
        };
        if cursor.region.load(0) == 0 {
            cursor.begin(core.first()?).map_err(failed)?;
        }
        cursor.stored()?;
        Ok(cursor)
    }

    /// A new cursor begins at the first record.
    fn begin(&self, first: u64) -> std::io::Result<()> {
        self.store(Bookmark {
            next: first,
            checksum: None,
        });
        self.region.publish(0, MAGIC);
        self.region.sync(0, BYTES)?;
        self.journal.core().storage.sync_names()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence number of the record to read next. After a loss of power that took records, this is the journal's end at most.
    ///
    /// # Errors
    /// [`Error::Damage`] when neither slot is sound. [`Error::Lost`] when the journal has lost the record before the position since the cursor
    /// was moved: [`set`](Self::set) moves it to where its reader is to resume.
    pub fn position(&self) -> Result<u64> {
        let core = self.journal.core();
        let stored = self.stored()?;
        let next = core.checked(core.published())?;
        if stored.next <= next && !self.is_confirmed.load(Relaxed) {
            self.journal.confirm(stored)?;
            self.is_confirmed.store(true, Relaxed);
        }
        Ok(stored.next.min(next))
    }

    /// What the file says.
    fn stored(&self) -> Result<Bookmark> {
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

    /// Move the cursor, in any direction.
    ///
    /// # Errors
    /// [`Error::NotYet`] after the end of the journal.
    pub fn set(&self, sequence: u64) -> Result<()> {
        let core = self.journal.core();
        core.check_fork()?;
        let bookmark = match self.journal.bookmark(sequence) {
            Err(Error::Pruned { .. }) => Bookmark {
                next: sequence,
                checksum: None,
            },
            found => found?,
        };
        self.store(bookmark);
        self.check()
    }

    /// Make the position survive a loss of power.
    ///
    /// # Errors
    /// An error of the system.
    pub fn sync(&self) -> Result<()> {
        let core = self.journal.core();
        let path = || core.storage.path(&format!("cursors/{}", self.name));
        self.region.sync(0, BYTES).map_err(|source| Error::Io {
            verb: "sync",
            path: path(),
            source,
        })
    }

    fn store(&self, bookmark: Bookmark) {
        cursor_file::store(&self.region, bookmark);
        self.is_confirmed.store(true, Relaxed);
    }
}

impl<S: Storage> Journal<S> {
    /// The cursor of that name, at the first record when it is new.
    ///
    /// # Errors
    /// [`Error::CursorName`]; [`Error::CursorInUse`] unless all openings of the cursor share it; [`Error::Damage`].
    pub fn cursor(&self, name: &str, share: CursorMode) -> Result<Cursor<S>> {
        Cursor::open(self.clone(), name, share)
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
        cursor_file::remove(self.core(), name)
    }
}
