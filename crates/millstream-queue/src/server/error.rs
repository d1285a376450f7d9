//! Why a server cannot start or reload.

use std::any::Any;
use std::path::{Path, PathBuf};

use millstream_journal::panic_text;

use crate::error::{Cause, QueueError};

/// Why a server could not start or continue.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration or the queues.
    #[error(transparent)]
    Broker(#[from] QueueError),
    /// An address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file or directory.
    #[error("{}: cannot be opened", path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system.
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
    /// The files could not be read again.
    #[error("{0}")]
    Reload(String),
    /// A request to a server that does not run, or has ended before its answer.
    #[error("the server of the queues does not run")]
    NotRunning,
    /// A request to a server that has too many others to answer.
    #[error("the server of the queues is busy with other requests of its page")]
    Busy,
    /// The changes that followers get, or where they are served.
    #[error(transparent)]
    Replica(Cause),
    /// Another machine serves these queues now.
    #[error("{0}: this server answers nothing any more")]
    Superseded(String),
    /// The runtime or a thread.
    #[error("the server cannot start")]
    Start(#[source] std::io::Error),
    /// The thread of the server has panicked: a bug in it.
    #[error("{}: the server of the queues panicked: {message}", dir.display())]
    Panicked {
        /// The directory of its queues.
        dir: PathBuf,
        /// The message of the panic.
        message: String,
    },
}

impl ServerError {
    pub(super) fn panicked(dir: &Path, panic: &(dyn Any + Send)) -> Self {
        ServerError::Panicked {
            dir: dir.to_owned(),
            message: panic_text(panic).to_owned(),
        }
    }
}

millstream_journal::debug_as_chain!(ServerError);
