//! The errors of connections.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

/// Why a connection could not be made, or has ended.
///
/// `Debug` is the error and its cause in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
#[doc(hidden)] // For the other crates of Millstream.
pub enum LinkError {
    /// The connection.
    #[error("{verb}")]
    Connection {
        /// The operation: `cannot connect to 10.0.0.7:7600`.
        verb: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The other side has closed the connection.
    #[error("the other side has closed the connection{hint}")]
    Closed {
        /// A possible reason.
        hint: &'static str,
    },
    /// Nothing was received for too long.
    #[error("nothing was received for {waited:?}")]
    Silent {
        /// How long.
        waited: Duration,
    },
    /// Bytes that violate the protocol.
    #[error("the other side does not follow the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// A file: a secret, a certificate, a key.
    #[error("{}: {what}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// TLS.
    #[error("TLS: {0}")]
    Tls(String),
    /// Values that cannot be used.
    #[error("{0}")]
    Usage(String),
}

impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source() {
            Some(cause) => write!(f, "{self}: {cause}"),
            None => write!(f, "{self}"),
        }
    }
}

impl LinkError {
    /// A violation of the protocol.
    #[must_use]
    pub fn protocol(what: impl Into<String>) -> Self {
        LinkError::Protocol { what: what.into() }
    }

    /// Whether the same call may succeed later without intervention on this machine.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connection { .. } | Self::Closed { .. } | Self::Silent { .. } => true,
            Self::Protocol { .. } => true,
            Self::File { .. } | Self::Tls(_) | Self::Usage(_) => false,
        }
    }

    /// A failed operation on a connection, with what was done.
    #[must_use]
    pub fn connection(verb: impl Into<String>, source: io::Error) -> Self {
        LinkError::Connection {
            verb: verb.into(),
            source,
        }
    }
}
