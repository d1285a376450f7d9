//! TLS: certificates and key from PEM files.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::ServerError;

/// The acceptor of TLS connections.
pub(super) fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, ServerError> {
    let failed = |path: &Path, message: &dyn std::fmt::Display| ServerError::Secret {
        path: path.to_owned(),
        message: message.to_string(),
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect)
        .map_err(|error| failed(certificates, &error))?;
    if chain.is_empty() {
        return Err(failed(certificates, &"no certificate in this file"));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| failed(certificates, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
