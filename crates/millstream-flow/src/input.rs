//! What a source reads of the storage of its machine, and how processes on several machines find out whether they mean the same.
//!
//! A path is only a name: on each machine it may be another file. So processes compare what is stored under it. One inode on one machine is
//! one file. On different machines files with the same first bytes are one file if they have the same length, as copies have, or are on
//! storage that machines share. The first bytes are compared up to a power of two, because a file may have grown between two looks.
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
pub(crate) mod listing;
mod storage;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use directory::DirectoryId;
pub use file::FileId;

use crate::error::Cause;

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
}

impl Input {
    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Input::File(path) => Some(path),
            Input::Directory { .. } => None,
        }
    }

    /// The path, for people.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Input::File(path) | Input::Directory { path, .. } => path,
        }
    }

    /// Returns what is stored there now; `None` if nothing is, or nothing that can be compared: a pipe, a file that cannot be read. The
    /// process that reads it reports that.
    #[must_use]
    pub fn id(&self) -> Option<InputId> {
        match self {
            Input::File(path) => InputId::of_file(path),
            Input::Directory {
                path,
                pattern,
                follows,
            } => DirectoryId::of(path, pattern, *follows).map(InputId::Directory),
        }
    }
}

/// Identifies what is stored under a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputId {
    /// A file.
    File(FileId),
    /// The files of a directory.
    Directory(DirectoryId),
}

impl InputId {
    /// Looks at a file; `None` if there is no ordinary file that can be read.
    #[must_use]
    pub fn of_file(path: &Path) -> Option<Self> {
        FileId::of(path).map(InputId::File)
    }

    /// Returns in words how what one process has differs from what `other` has; `None` if it is the same.
    #[must_use]
    pub fn difference(&self, other: &InputId) -> Option<String> {
        match (self, other) {
            (InputId::File(one), InputId::File(other)) => one.difference(other),
            (InputId::Directory(one), InputId::Directory(other)) => one.difference(other),
            _ => Some("one is a file and the other a directory".to_owned()),
        }
    }

    /// Returns it as bytes, for another process.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, Cause> {
        Ok(rmp_serde::to_vec(self)?)
    }

    /// Reads what [`encode`](Self::encode) has returned.
    ///
    /// # Errors
    /// Other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Cause> {
        Ok(rmp_serde::from_slice(bytes)?)
    }
}
