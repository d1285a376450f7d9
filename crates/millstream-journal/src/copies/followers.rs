//! Which copy of a journal counts as a follower.
//!
//! The position of a follower on another machine is a cursor, `follower.NAME`. Each move of it says which copy it is
//! for, by the copy's
//! [own number](crate::Identity::own). A copy must be *admitted* before its position counts: a follower that a leader meets for the first
//! time may belong to a machine on which another copy may have been promoted.
//!
//! The invariant: a copy counts when it has been admitted durably, and only while the position is its own.
//!
//! ```
//! use millstream_journal::{CursorMode, Journal, Options};
//!
//! # let folder = tempfile::tempdir()?;
//! let journal = Journal::open(folder.path().join("orders"), Options::default())?;
//! journal.writer()?.append(b"buy 100")?;
//! let cursor = journal.cursor("follower.backup", CursorMode::Shared)?;
//! cursor.set_for(7, 1)?;
//! assert_eq!(cursor.counted()?, None);
//! cursor.admit(7)?;
//! assert_eq!(cursor.counted()?, Some(1));
//! // The copy was deleted, and another one has begun under the name.
//! cursor.set_for(8, 1)?;
//! assert_eq!(cursor.counted()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::Result;
use crate::format::admission::{Admission, FOLLOWER, end, read, write};
use crate::journal::Journal;
use crate::read::cursor::Cursor;
use crate::read::cursor_file;
use crate::storage::{Access, Storage};

impl<S: Storage> Cursor<S> {
    /// Admit a follower's copy: its position counts from now on, and that of another copy does not. No process counts
    /// it before the admission survives a loss of power.
    ///
    /// # Errors
    /// An error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn admit(&self, copy: u64) -> Result<()> {
        self.journal().core().check_fork()?;
        self.synced(write(self.region(), copy))
    }

    /// The copy that was admitted.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn admission(&self) -> Admission {
        read(self.region())
    }
}

/// Works for every opening, also of a journal that another process has open exclusively: only the file of the cursor is
/// changed.
impl<S: Storage> Journal<S> {
    /// Admit the copy that a follower's cursor has the position of, as [`Cursor::admit`] does. Returns whether there is
    /// such a follower.
    ///
    /// # Errors
    /// [`CursorName`](crate::Error::CursorName); [`Damage`](crate::Error::Damage); an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn admit_follower(&self, name: &str) -> Result<bool> {
        let core = self.core();
        let name = follower(name);
        let Some(region) = cursor_file::view(&core.storage, &name, Access::Write)? else {
            return Ok(false);
        };
        let copy = cursor_file::read(core, &name, &region)?.copy;
        cursor_file::synced(core, &name, write(&region, copy))?;
        Ok(true)
    }

    /// Forget the copy that was admitted for a follower: its position does not count. Returns whether there is such a
    /// follower.
    ///
    /// # Errors
    /// [`CursorName`](crate::Error::CursorName); an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn dismiss_follower(&self, name: &str) -> Result<bool> {
        let core = self.core();
        let name = follower(name);
        let Some(region) = cursor_file::view(&core.storage, &name, Access::Write)? else {
            return Ok(false);
        };
        cursor_file::synced(core, &name, end(&region))?;
        Ok(true)
    }

    /// Remove a follower's cursor: it neither counts nor retains records.
    ///
    /// # Errors
    /// [`CursorName`](crate::Error::CursorName); [`CursorInUse`](crate::Error::CursorInUse) while a serving process has
    /// the cursor open, as for a follower that is connected; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn remove_follower(&self, name: &str) -> Result<()> {
        cursor_file::remove(self.core(), &follower(name))
    }
}

fn follower(name: &str) -> String {
    format!("{FOLLOWER}{name}")
}
