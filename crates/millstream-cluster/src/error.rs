//! Why a process could not join the others.

use millstream_link::{Address, LinkError};

/// Why a process could not join the others.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A connection, a secret or a certificate.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The address of this process cannot be used.
    #[error(
        "process {process} cannot listen on {address} (--listen names another address of this machine)"
    )]
    Listen {
        /// This process.
        process: usize,
        /// Its address.
        address: Address,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The other side speaks another version.
    #[error(
        "the process at the other end speaks version {theirs} of the cluster's protocol, this one {ours}: start all processes with the \
         same Millstream"
    )]
    Version {
        /// Theirs.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// Process 0 or another process has refused this one, or its state is not what the others need.
    #[error("{0}")]
    Refused(String),
    /// The other side has not proved that it knows the secret.
    #[error(
        "the process at {address} does not know the secret, or was started without one (--secret-file)"
    )]
    OtherSecret {
        /// Its address.
        address: Address,
    },
    /// Options that do not fit together.
    #[error("{0}")]
    Usage(String),
}

millstream_flow::debug_as_chain!(ClusterError);
