//! Requests to arbiters that are reached by HTTP, each of which ends in time.
//!
//! Proxies of the environment are not used, and redirects are not followed: an arbiter is asked directly, or the
//! answer may be that of another one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use ureq::http::{Request, StatusCode};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Timeout};

/// What is read of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What an error quotes of it, in characters.
const QUOTED_MAX: usize = 300;

/// The files in PEM with which etcd is reached over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArbiterTls {
    /// The certificates of the authorities that are trusted, instead of Mozilla's list.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to etcd, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// How long a request takes at most.
pub(super) struct Limits {
    /// Until it is sent.
    pub connect: Duration,
    /// Until its answer is read.
    pub whole: Duration,
}

/// What a server has answered.
pub(super) struct Answer {
    pub status: StatusCode,
    /// `Null` if it is no JSON.
    pub body: Value,
    text: String,
}

impl Answer {
    /// The status, and what the server says in this field, or its first line.
    pub fn explained(&self, field: &str) -> String {
        let said = self.body[field].as_str();
        let said = said
            .or_else(|| self.text.lines().next())
            .unwrap_or_default();
        let said: String = said.trim().chars().take(QUOTED_MAX).collect();
        if said.is_empty() {
            format!("the answer is {}", self.status)
        } else {
            format!("the answer is {}: {said}", self.status)
        }
    }
}

/// Why there is no answer.
pub(super) struct NoAnswer {
    why: String,
    /// Whether the server has not got the request.
    pub is_unsent: bool,
}

impl NoAnswer {
    /// The server has got the request, or may have.
    pub fn sent(why: String) -> Self {
        let is_unsent = false;
        NoAnswer { why, is_unsent }
    }

    pub fn unsent(why: String) -> Self {
        let is_unsent = true;
        NoAnswer { why, is_unsent }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Connections that are kept alive.
pub(super) struct Client(Agent);

impl Client {
    pub fn new(tls: &ArbiterTls) -> Result<Self, String> {
        let roots = match &tls.ca {
            None => RootCerts::WebPki,
            Some(path) => RootCerts::new_with_certs(&read_certificates(path)?),
        };
        let identity = tls.certificate.as_ref();
        let identity = identity.map(|(certificate, key)| read_identity(certificate, key));
        let tls = TlsConfig::builder()
            .root_certs(roots)
            .client_cert(identity.transpose()?);
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("millstream/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Client(Agent::new_with_config(config)))
    }

    /// Sends a request, and reads its answer.
    pub fn send(&self, request: Request<String>, limits: &Limits) -> Result<Answer, NoAnswer> {
        let (head, body) = request.into_parts();
        let answer = if body.is_empty() {
            self.run(Request::from_parts(head, ()), limits)
        } else {
            self.run(Request::from_parts(head, body), limits)
        };
        answer.map_err(|error| NoAnswer {
            is_unsent: is_unsent(&error),
            why: match error {
                ureq::Error::Timeout(_) => format!("no answer within {:?}", limits.whole),
                ureq::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            },
        })
    }

    fn run(
        &self,
        request: Request<impl ureq::AsSendBody>,
        limits: &Limits,
    ) -> Result<Answer, ureq::Error> {
        let configured = self.0.configure_request(request);
        let request = configured
            .timeout_connect(Some(limits.connect))
            .timeout_global(Some(limits.whole))
            .build();
        let mut answer = self.0.run(request)?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = String::from_utf8_lossy(&body.read_to_vec()?).into_owned();
        Ok(Answer {
            status: answer.status(),
            body: serde_json::from_str(&text).unwrap_or_default(),
            text,
        })
    }
}

/// Whether there was no connection. Any other error may be that of a request that has arrived.
fn is_unsent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(when) => matches!(when, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn named(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let pem = std::fs::read(path).map_err(|error| named(path, error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| named(path, error))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        Err(named(path, "no certificate in this file"))
    } else {
        Ok(certificates)
    }
}

/// A certificate and its key. That they belong together is looked at here: the client takes it for granted.
fn read_identity(certificate: &Path, key: &Path) -> Result<ClientCert, String> {
    let chain = read_certificates(certificate)?;
    let pem = std::fs::read(key).map_err(|error| named(key, error))?;
    let private = PrivateKey::from_pem(&pem).map_err(|error| named(key, error))?;
    let der = chain
        .iter()
        .map(|one| CertificateDer::from(one.der().to_vec()));
    let key_der =
        PrivateKeyDer::try_from(private.der().to_vec()).map_err(|error| named(key, error))?;
    CertifiedKey::from_der(der.collect(), key_der, &default_provider()).map_err(|error| {
        named(
            key,
            format_args!("not the key of {}: {error}", certificate.display()),
        )
    })?;
    Ok(ClientCert::new_with_certs(&chain, private))
}
