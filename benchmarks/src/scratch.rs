//! Directories of a benchmark, removed when it is done.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static MADE: AtomicU64 = AtomicU64::new(0);

/// A directory that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory in `folder`.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("millstream-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Scratch(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to its owner.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}
