//! TLS to a queue server, for the verbs.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::failure::Failure;

/// Makes the TLS handshake over `stream`. The server's certificate must be one of those in the PEM file `trusted`, or
/// be signed by one of them for `name`.
pub(super) fn connect(
    trusted: &Path,
    name: &str,
    mut stream: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Failure> {
    let of_file =
        |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", trusted.display()));
    let mut roots = RootCertStore::empty();
    let mut known = Vec::new();
    let certificates = CertificateDer::pem_file_iter(trusted).map_err(|error| of_file(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| of_file(&error))?;
        known.push(certificate.clone());
        roots.add(certificate).map_err(|error| of_file(&error))?;
    }
    if roots.is_empty() {
        return Err(of_file(&"no certificate in this file"));
    }
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!("no TLS connection to \"{name}\": {error}"))
    };
    let provider = Arc::new(ring::default_provider());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| of_file(&error))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { known, signed }))
        .with_no_client_auth();
    let server = ServerName::try_from(name.to_owned()).map_err(|error| failed(&error))?;
    let mut connection =
        ClientConnection::new(Arc::new(config), server).map_err(|error| failed(&error))?;
    // Now, so that a certificate that does not fit is reported as such and not at the first request.
    while connection.is_handshaking() {
        connection
            .complete_io(&mut stream)
            .map_err(|error| failed(&error))?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// Trusts the very certificates in the file, and those that they have signed. A self-signed certificate counts as
/// an authority's, which a server must not have, unless it is known.
#[derive(Debug)]
struct Verifier {
    known: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.known.iter().any(|known| known == certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed
            .verify_server_cert(certificate, between, name, status, now)
    }

    // That the server has the certificate's key is checked in any case.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
