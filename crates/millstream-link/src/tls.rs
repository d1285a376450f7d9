//! TLS 1.3 between listener and caller: the certificates of both sides, and the handshake.
//!
//! | caller has | listener shows | authenticated by |
//! |---|---|---|
//! | a secret | a [raw public key](super::raw_key), made at its start | the secret, on both sides |
//! | authorities, and perhaps a secret | its certificate | the certificate, and the secret |
//! | neither | nothing: no TLS, on a loopback address only | nothing |
//!
//! A listener with authorities of its own asks each caller for a certificate as well (mutual TLS).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{Accepted, Acceptor, CertificateType, NoClientAuth, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection};
use rustls::{ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier};

use crate::certificate::{explain, tls_failed};
use crate::deadline::Deadline;
use crate::error::LinkError;
use crate::limited::Limited;
use crate::protocol::{Protocol, Side};
use crate::raw_key::{self, AnyKey};
use crate::socket::Socket;
use crate::stream::Stream;

/// A listener without a certificate of its own is not called by a name.
const NO_NAME: &str = "leader.invalid";

/// The certificate of a listener, as PEM files.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ListenerTls {
    /// The certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign for callers. With them, a caller must show a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// How a caller recognises the listener by its certificate.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct CallerTls {
    /// A PEM file with the certificates of the authorities that sign for listeners.
    pub authorities: PathBuf,
    /// The name in the listener's certificate; the host of its address when there is none.
    pub name: Option<String>,
    /// The caller's own certificate and key as PEM files, for a listener that asks for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The listener's side of TLS.
#[doc(hidden)] // For the other crates of Millstream.
pub struct ListenerSide {
    protocol: &'static Protocol,
    /// For callers that take a raw public key.
    raw: Arc<ServerConfig>,
    /// For callers that verify a certificate.
    certified: Option<Arc<ServerConfig>>,
    /// Why a caller without TLS is refused, if it is.
    refusal: Option<String>,
}

impl ListenerSide {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, or that has something else in it.
    pub fn new(
        protocol: &'static Protocol,
        tls: Option<&ListenerTls>,
        has_secret: bool,
    ) -> Result<Self, LinkError> {
        let provider = Arc::new(ring::default_provider());
        let authorities = tls.and_then(|tls| tls.client_authorities.as_deref());
        let clients: Arc<dyn ClientCertVerifier> = match authorities {
            None => Arc::new(NoClientAuth),
            Some(path) => {
                let roots = Arc::new(read_authorities(path)?);
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| failed(path, &error))?
            }
        };
        let builder = || -> Result<_, LinkError> {
            let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
            let builder = builder
                .with_protocol_versions(&[&TLS13])
                .map_err(set_up_failed)?;
            Ok(builder.with_client_cert_verifier(Arc::clone(&clients)))
        };
        let key = raw_key::generate(&provider).map_err(set_up_failed)?;
        let raw = builder()?.with_cert_resolver(Arc::new(key));
        let certified = match tls {
            None => None,
            Some(tls) => {
                let (chain, key) = read_identity(&tls.certificate, &tls.key)?;
                let config = builder()?.with_single_cert(chain, key);
                Some(config.map_err(|error| failed(&tls.certificate, &error))?)
            }
        };
        let each_anew = |mut config: ServerConfig| {
            config.send_tls13_tickets = 0;
            Arc::new(config)
        };
        let listener = protocol.listener;
        Ok(ListenerSide {
            protocol,
            raw: each_anew(raw),
            certified: certified.map(each_anew),
            refusal: match (has_secret, tls) {
                (true, _) => Some(format!(
                    "the {listener} asks for a secret: give the one that it has"
                )),
                (false, Some(_)) => Some(format!("the {listener} speaks TLS (--tls-ca)")),
                (false, None) => None,
            },
        })
    }

    /// Returns the connection of a caller, after the TLS handshake if it begins one; `None` when `stop` is raised
    /// first.
    ///
    /// The handshake takes `greeting` at most; later a write fails after `patience`. The second value is the reason to
    /// refuse a caller without TLS.
    ///
    /// # Errors
    /// The connection is lost, the time is over, or TLS is violated.
    pub fn accept(
        &self,
        socket: Socket,
        greeting: Duration,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<(Stream, Option<&str>)>, LinkError> {
        let mut limited = Limited {
            socket: &socket,
            deadline: Deadline::after(greeting),
        };
        Stream::prepare(&socket, patience)?;
        match limited.begins_with_tls(stop)? {
            None => Ok(None),
            Some(false) => Ok(Some((
                Stream::new(socket, self.protocol, None)?,
                self.refusal.as_deref(),
            ))),
            Some(true) => {
                let tls = self.handshake(&mut limited).inspect_err(|_| {
                    // The caller learns the reason from an alert of TLS.
                    limited.linger();
                })?;
                Ok(Some((Stream::new(socket, self.protocol, Some(tls))?, None)))
            }
        }
    }

    fn handshake(&self, limited: &mut Limited<'_>) -> Result<Connection, LinkError> {
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            match acceptor.read_tls(limited) {
                Ok(0) => {
                    return Err(tls_failed(
                        std::io::ErrorKind::UnexpectedEof.into(),
                        self.protocol,
                    ));
                }
                Ok(_) => {}
                Err(error) => return Err(tls_failed(error, self.protocol)),
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let _gone_already = alert.write_all(limited);
                    return Err(tls_error(&error, Side::Listener, self.protocol));
                }
            }
        };
        let config = self.config_for(&accepted);
        let tls = accepted.into_connection(Arc::clone(config));
        let tls = tls.map_err(|(error, mut alert)| {
            let _gone_already = alert.write_all(limited);
            tls_error(&error, Side::Listener, self.protocol)
        })?;
        complete(tls.into(), limited, Side::Listener, self.protocol)
    }

    fn config_for(&self, accepted: &Accepted) -> &Arc<ServerConfig> {
        let hello = accepted.client_hello();
        let takes_raw = hello
            .server_cert_types()
            .is_some_and(|types| types.contains(&CertificateType::RawPublicKey));
        match &self.certified {
            Some(certified) if !takes_raw => certified,
            _ => &self.raw,
        }
    }
}

/// The caller's side of TLS.
#[doc(hidden)] // For the other crates of Millstream.
pub struct CallerSide {
    protocol: &'static Protocol,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl CallerSide {
    /// For a listener that is recognised by its certificate, or else by the secret; `None` when there is neither.
    ///
    /// # Errors
    /// A file that cannot be read, or that has something else in it; a name that is none.
    pub fn new(
        protocol: &'static Protocol,
        host: &str,
        tls: Option<&CallerTls>,
        has_secret: bool,
    ) -> Result<Option<Self>, LinkError> {
        let provider = Arc::new(ring::default_provider());
        let builder = client_builder(&provider)?;
        let (name, mut config) = match tls {
            None if !has_secret => return Ok(None),
            None => {
                let any: Arc<dyn ServerCertVerifier> = Arc::new(AnyKey::new(&provider));
                let builder = builder.dangerous().with_custom_certificate_verifier(any);
                (NO_NAME, builder.with_no_client_auth())
            }
            Some(tls) => {
                let builder = builder.with_root_certificates(read_authorities(&tls.authorities)?);
                let config = match &tls.certificate {
                    None => builder.with_no_client_auth(),
                    Some((certificate, key)) => {
                        let (chain, key) = read_identity(certificate, key)?;
                        let config = builder.with_client_auth_cert(chain, key);
                        config.map_err(|error| failed(certificate, &error))?
                    }
                };
                (tls.name.as_deref().unwrap_or(host), config)
            }
        };
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| LinkError::Usage(format!("'{name}' is not the name of a server")))?;
        Ok(Some(CallerSide {
            protocol,
            config: Arc::new(config),
            name,
        }))
    }
}

fn client_builder(
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, LinkError> {
    ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(set_up_failed)
}

/// Returns the connection to a listener, after the TLS handshake if there is one.
///
/// The handshake takes `greeting` at most; later a write fails after `patience`.
///
/// # Errors
/// The connection is lost, the time is over, or the listener could not be authenticated.
#[doc(hidden)] // For the other crates of Millstream.
pub fn connect(
    socket: Socket,
    protocol: &'static Protocol,
    tls: Option<&CallerSide>,
    greeting: Duration,
    patience: Duration,
) -> Result<Stream, LinkError> {
    Stream::prepare(&socket, patience)?;
    let Some(tls) = tls else {
        return Stream::new(socket, protocol, None);
    };
    let mut limited = Limited {
        socket: &socket,
        deadline: Deadline::after(greeting),
    };
    let protocol = tls.protocol;
    let tls = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
    let tls = tls.map_err(|error| tls_error(&error, Side::Caller, protocol))?;
    let tls = complete(tls.into(), &mut limited, Side::Caller, protocol)?;
    Stream::new(socket, protocol, Some(tls))
}

/// The TLS handshake.
fn complete(
    mut tls: Connection,
    limited: &mut Limited<'_>,
    side: Side,
    protocol: &Protocol,
) -> Result<Connection, LinkError> {
    while tls.is_handshaking() {
        tls.complete_io(limited).map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            match inner {
                Some(inner) => tls_error(inner, side, protocol),
                None => tls_failed(error, protocol),
            }
        })?;
    }
    Ok(tls)
}

fn read_authorities(path: &Path) -> Result<RootCertStore, LinkError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| failed(path, &error))?;
    }
    Ok(roots)
}

fn read_identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), LinkError> {
    let chain = read_certificates(certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    Ok((chain, key))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LinkError> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| failed(path, &error))?;
    if chain.is_empty() {
        return Err(failed(path, &"no certificate in this file"));
    }
    Ok(chain)
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> LinkError {
    LinkError::File {
        path: path.to_owned(),
        what: error.to_string(),
    }
}

fn set_up_failed(error: rustls::Error) -> LinkError {
    LinkError::Tls(error.to_string())
}

fn tls_error(error: &rustls::Error, side: Side, protocol: &Protocol) -> LinkError {
    LinkError::Tls(explain(error, side, protocol))
}
