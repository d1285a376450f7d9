//! Why a process could not join the others.

use millstream_flow::named::Named;
use millstream_link::{Address, LinkError};

/// What all processes prove that they know.
pub(crate) const SECRET: Named = Named(["Auth::Secret", "secret_file=", "--secret-file"]);
/// How processes are known by their certificates.
pub(crate) const CERTIFICATES: Named = Named([
    "Auth::Tls",
    "tls_cert=, tls_key= and tls_ca=",
    "--tls-cert, --tls-key, --tls-ca",
]);
/// Where a process listens.
const LISTEN: Named = Named(["Settings::listen", "listen=", "--listen"]);

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
        "process {process} cannot listen on {address} ({} names another address of this machine)",
        LISTEN
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
        "the process at {address} does not know the secret, or was started without one ({})",
        SECRET
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
