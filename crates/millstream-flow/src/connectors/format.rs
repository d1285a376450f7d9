//! The format of a file that a source reads.

use std::path::Path;

use crate::error::Cause;
use crate::source::Partition;

/// Reads the contents of a file, independent of its name.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Format<B>: Send + Sync + 'static {
    /// Describes the contents for people, for instance `lines`.
    fn describe_format(&self) -> String;
    /// Whether a file is compressed: then positions count other bytes than those of the file.
    fn is_compressed(&self, path: &Path) -> bool;
    /// Returns the byte at which a file resumes that was read up to `position`, and may have grown since.
    ///
    /// # Errors
    /// The file is shorter than that, or its last record has grown.
    fn resumes_at(&self, path: &Path, position: u64) -> Result<u64, Cause>;
    /// Opens a file at a byte.
    ///
    /// # Errors
    /// The file cannot be read.
    fn open_file(&self, path: &Path, from: u64) -> Result<Box<dyn Partition<B>>, Cause>;
}
