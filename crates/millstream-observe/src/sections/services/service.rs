//! A service that is watched: its progress, and its journals.

use std::path::PathBuf;

use millstream_service::Reading;

/// Returns the progress of a service.
#[doc(hidden)] // For the other crates of Millstream.
pub type Progress = Box<dyn Fn() -> Reading + Send + Sync>;

/// A service, and its journals.
pub struct ServiceOf {
    /// Its name.
    pub name: String,
    /// Its progress.
    pub progress: Progress,
    /// The journals of its inputs, in the order of the positions of its progress.
    pub inputs: Vec<PathBuf>,
    /// The journal of its output.
    pub output: Option<PathBuf>,
    /// The journal of its dead letters.
    pub dead_letters: Option<PathBuf>,
}
