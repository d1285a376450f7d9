//! Why a server cannot start or reload.

use std::path::PathBuf;

use crate::error::QueueError;

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration or the broker.
    #[error(transparent)]
    Broker(#[from] QueueError),
    /// An address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Certificate, key or credentials that cannot be used.
    #[error("{}: {message}", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The runtime or the signals.
    #[error("cannot start: {0}")]
    Start(#[source] std::io::Error),
}
