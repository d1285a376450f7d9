//! Directories for the journals of a benchmark, which disappear.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static MADE: AtomicU64 = AtomicU64::new(0);

/// A directory that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new directory in `folder`.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(folder: &Path) -> std::io::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("millstream-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }

    /// Where it is.
    #[must_use]
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
