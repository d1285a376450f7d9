//! What a source reads of the storage of its machine, and how processes on several machines find out whether they mean
//! the same.
//!
//! A path is only a name: on each machine it may be another file. So processes compare what is stored under it. One
//! inode on one machine is one file. On different machines files with the same first bytes are one file if they have
//! the same length, as copies have, or are on storage that machines share. The first bytes are compared up to a power
//! of two, because a file may have grown between two looks.
//!
//! ```
//! use millstream_flow::input::InputId;
//!
//! let folder = tempfile::tempdir()?;
//! let at = |name: &str| folder.path().join(name);
//! std::fs::write(at("a"), "one\n")?;
//! std::fs::write(at("b"), "two\n")?;
//! std::fs::copy(at("a"), at("copy"))?;
//! let id = |name: &str| InputId::of_file(&at(name)).expect("it is a file");
//! assert_eq!(id("a").difference(&id("copy")), None);
//! assert!(id("a").difference(&id("b")).is_some());
//! # Ok::<(), std::io::Error>(())
//! ```

mod directory;
mod file;
mod journal;
pub(crate) mod listing;
mod storage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use directory::DirectoryId;
pub use file::FileId;
pub use journal::JournalId;

/// What a source reads of the storage of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// The files of a directory.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Which of its files, as a pattern of names.
        pattern: String,
        /// Whether files that come later are read.
        follows: bool,
    },
    /// A journal.
    Journal(PathBuf),
}

impl Input {
    /// The file, if it is one.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Input::File(path) => Some(path),
            Input::Directory { .. } | Input::Journal(_) => None,
        }
    }

    /// The path, for people.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn path(&self) -> &Path {
        match self {
            Input::File(path) | Input::Directory { path, .. } | Input::Journal(path) => path,
        }
    }

    /// Returns what is stored there now; `None` if nothing is, or nothing that can be compared: a pipe, a file that
    /// cannot be read. The process that reads it reports that.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn id(&self) -> Option<InputId> {
        match self {
            Input::File(path) => InputId::of_file(path),
            Input::Directory {
                path,
                pattern,
                follows,
            } => DirectoryId::of(path, pattern, *follows).map(InputId::Directory),
            Input::Journal(path) => JournalId::of(path).map(InputId::Journal),
        }
    }
}

/// The end of the description of a source: whether each machine has its own.
pub(crate) fn of_machine(local: bool) -> &'static str {
    if local { ", of each machine" } else { "" }
}

/// Identifies what is stored under a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum InputId {
    /// A file.
    File(FileId),
    /// The files of a directory.
    Directory(DirectoryId),
    /// A journal.
    Journal(JournalId),
}

impl InputId {
    /// Looks at a file; `None` if there is no ordinary file that can be read.
    #[must_use]
    pub fn of_file(path: &Path) -> Option<Self> {
        FileId::of(path).map(InputId::File)
    }

    /// Whether the file or journal that was known as `saved` has become this: it begins with the same, and may have
    /// grown.
    pub(crate) fn continues(&self, saved: &InputId) -> bool {
        match (self, saved) {
            (InputId::File(now), InputId::File(saved)) => now.continues(saved),
            (InputId::Journal(now), InputId::Journal(saved)) => now.difference(saved).is_none(),
            _ => false,
        }
    }

    /// Returns in words how what one process has differs from what `other` has; `None` if it is the same.
    #[must_use]
    pub fn difference(&self, other: &InputId) -> Option<String> {
        match (self, other) {
            (InputId::File(one), InputId::File(other)) => one.difference(other),
            (InputId::Directory(one), InputId::Directory(other)) => one.difference(other),
            (InputId::Journal(one), InputId::Journal(other)) => one.difference(other),
            _ => Some(
                "one is something else than the other: a file, a directory or a journal".to_owned(),
            ),
        }
    }

    /// Whether both are one thing, and not copies: on one machine, or on storage that two machines share.
    #[must_use]
    pub fn is_one(&self, other: &InputId) -> bool {
        let places = match (self, other) {
            (InputId::File(one), InputId::File(other)) => (one.place, other.place),
            (InputId::Directory(one), InputId::Directory(other)) => (one.place, other.place),
            (InputId::Journal(one), InputId::Journal(other)) => (one.place, other.place),
            _ => return false,
        };
        places.0.is_same(&places.1)
            || places.0.is_shared(&places.1) && self.difference(other).is_none()
    }
}
