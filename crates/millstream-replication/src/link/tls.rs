//! TLS: who the leader is, from PEM files.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use rustls::{ServerConfig, ServerConnection};

use super::certificate::explain;
use super::error::ReplicationError;
use super::stream::Stream;

/// How long both sides have to come to know each other.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// How a leader shows who it is.
#[derive(Clone)]
pub(super) struct LeaderTls(Arc<ServerConfig>);

impl LeaderTls {
    /// With the certificates and the key in these files.
    pub fn read(certificates: &Path, key: &Path) -> Result<Self, ReplicationError> {
        let chain = read_certificates(certificates)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ReplicationError::Tls(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| failed(certificates, &error))?;
        Ok(LeaderTls(Arc::new(config)))
    }
}

/// How a follower finds out that a leader is the right one.
#[derive(Clone, Debug)]
pub struct FollowerTls {
    /// A PEM file with the certificates of those who may vouch for the leader.
    pub authorities: PathBuf,
    /// The name in the leader's certificate; the host of its address when there is none.
    pub name: Option<String>,
}

/// [`FollowerTls`], read.
pub(super) struct Verifier {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl FollowerTls {
    /// Read the file.
    pub(super) fn read(&self, host: &str) -> Result<Verifier, ReplicationError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&self.authorities)? {
            roots
                .add(certificate)
                .map_err(|error| failed(&self.authorities, &error))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ReplicationError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name.clone())
            .map_err(|_| ReplicationError::Usage(format!("'{name}' is no name of a server")))?;
        Ok(Verifier {
            config: Arc::new(config),
            name,
        })
    }
}

/// A connection as the leader sees it.
pub(super) fn accept(
    socket: TcpStream,
    tls: Option<&LeaderTls>,
    patience: Duration,
) -> Result<Stream, ReplicationError> {
    let tls = tls.map(|LeaderTls(config)| ServerConnection::new(Arc::clone(config)));
    let tls = tls.transpose().map_err(tls_error)?.map(Connection::from);
    Stream::open(socket, tls, deadline_ns(), patience)
}

/// A connection as a follower sees it.
pub(super) fn connect(
    socket: TcpStream,
    tls: Option<&Verifier>,
    patience: Duration,
) -> Result<Stream, ReplicationError> {
    let tls = tls.map(|tls| ClientConnection::new(Arc::clone(&tls.config), tls.name.clone()));
    let tls = tls.transpose().map_err(tls_error)?.map(Connection::from);
    Stream::open(socket, tls, deadline_ns(), patience)
}

/// When the greeting that begins now must have ended.
pub(super) fn deadline_ns() -> u64 {
    monotonic_ns() + GREETING.as_nanos() as u64
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ReplicationError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| failed(path, &error))?;
    if chain.is_empty() {
        return Err(failed(path, &"no certificate in this file"));
    }
    Ok(chain)
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ReplicationError {
    ReplicationError::File {
        path: path.to_owned(),
        what: error.to_string(),
    }
}

fn tls_error(error: rustls::Error) -> ReplicationError {
    ReplicationError::Tls(explain(&error))
}
