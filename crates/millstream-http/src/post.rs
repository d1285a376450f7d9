//! A destination of an outbox: batches of records as POST requests.
//!
//! Each request has the header `Idempotency-Key: FLOW-SINK-OUTBOX-first-last`. A delivery that is repeated by the same run has the same key.
//! After a crash a batch may be divided differently; with [`Batch::Each`] the key of a record never changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::durable::escape;
use millstream_flow::framing::Frames;
use millstream_flow::outbox::{Connector, DeliveryError, Destination, OutboxIdentity};
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// The default for the time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What is read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// What an error quotes of it, in characters.
const QUOTED_MAX: usize = 200;
/// The longest delay that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How records become the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// A JSON array of the records, which are JSON documents.
    #[default]
    Array,
    /// One record a line, `application/x-ndjson`.
    Lines,
    /// A request for each record, whose body it is, `application/json`.
    Each,
}

/// The connector of a destination that is posted to. See [`post`].
#[derive(Clone)]
pub struct Post {
    url: String,
    batch: Batch,
    headers: Vec<(String, String)>,
    timeout: Duration,
    ca: Option<PathBuf>,
}

/// Posts the records of an [`Outbox`](millstream_flow::outbox::Outbox) to `url`, `http://` or `https://`, a JSON array for each batch.
///
/// A status of 2xx acknowledges the records. After 408, 425, 429 and 5xx, and after errors of the connection, the delivery is repeated; the delay is at least that of a
/// `Retry-After` in seconds, at most an hour. After 400, 409, 413, 422 and other 4xx that are about the contents the records are refused: the
/// batch is halved until those that the server does not take are alone, and each fails the flow unless
/// [`Outbox::skip_refused`](millstream_flow::outbox::Outbox::skip_refused) is set. Any other status, 401, 403, 404 and redirects among
/// them, fails the flow. Redirects are not followed.
///
/// ```
/// use millstream_flow::outbox::{Connector, Outbox};
///
/// let post = millstream_http::post("https://example.com/orders").token("secret");
/// assert_eq!(post.describe(), "http post https://example.com/orders");
/// let sink = Outbox::new(post).batch(100);
/// # drop(sink);
/// ```
#[must_use]
pub fn post(url: &str) -> Post {
    Post {
        url: url.to_owned(),
        batch: Batch::Array,
        headers: Vec::new(),
        timeout: TIMEOUT,
        ca: None,
    }
}

impl Post {
    /// Sets how records become bodies. The default is [`Batch::Array`].
    #[must_use]
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = batch;
        self
    }
    /// Sends the header `Authorization: Bearer TOKEN`.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header(AUTHORIZATION.as_str(), &format!("Bearer {token}"))
    }
    /// Sends a header; it replaces one of the same name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
    /// Sets the time of a request, from the connect to the end of the answer. The default is 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
    /// Trusts the certificates of the file `path`, in PEM, instead of Mozilla's list.
    #[must_use]
    pub fn ca(mut self, path: impl AsRef<Path>) -> Self {
        self.ca = Some(path.as_ref().to_owned());
        self
    }

    fn check_url(&self) -> Result<(), String> {
        let what = "the URL begins with http:// or https:// and a host";
        let uri: Uri = self.url.parse().map_err(|_| what)?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(host)) if !host.as_str().contains('@') => Ok(()),
            (Some("http" | "https"), Some(_)) => {
                Err("the URL has a password; pass it as a header".to_owned())
            }
            _ => Err(what.to_owned()),
        }
    }

    /// The certificates that are trusted.
    fn root_certs(&self) -> Result<RootCerts, String> {
        let Some(path) = &self.ca else {
            return Ok(RootCerts::WebPki);
        };
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let pem = std::fs::read(path).map_err(|error| named(&error))?;
        let mut certificates: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(certificate) = item.map_err(|error| named(&error))? {
                certificates.push(certificate);
            }
        }
        match certificates.is_empty() {
            true => Err(named(&"there is no certificate in PEM")),
            false => Ok(RootCerts::new_with_certs(&certificates)),
        }
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        let kind = match self.batch {
            Batch::Array | Batch::Each => "application/json",
            Batch::Lines => "application/x-ndjson",
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in &self.headers {
            let parsed: Result<HeaderName, _> = name.parse();
            let parsed = parsed.map_err(|_| format!("no name of a header: \"{name}\""))?;
            // The value may be a secret.
            let value = HeaderValue::from_str(value);
            let value = value.map_err(|_| {
                format!("the value of the header {name} has characters that a header cannot have")
            })?;
            headers.insert(parsed, value);
        }
        Ok(headers)
    }
}

impl Connector for Post {
    fn describe(&self) -> String {
        // Without a password that should not be there.
        let rest = self.url.split_once("://");
        let shown = rest.and_then(|(scheme, rest)| {
            let end = rest.find('/').unwrap_or(rest.len());
            let at = rest[..end].rfind('@')?;
            Some(format!("{scheme}://{}", &rest[at + 1..]))
        });
        format!("http post {}", shown.as_ref().unwrap_or(&self.url))
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        self.check_url().map_err(DeliveryError::fatal)?;
        let headers = self.header_map().map_err(DeliveryError::fatal)?;
        let root_certs = self.root_certs().map_err(DeliveryError::fatal)?;
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(root_certs).build())
            .timeout_global(Some(self.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("millstream/", env!("CARGO_PKG_VERSION")))
            .build();
        let (flow, sink) = (escape(&outbox.flow), escape(&outbox.sink));
        Ok(Box::new(Posting {
            post: self.clone(),
            agent: Agent::new_with_config(config),
            headers,
            key: format!("{flow}-{sink}-{}", outbox.id()),
        }))
    }
    fn remembers(&self) -> bool {
        false
    }
    fn batch_records_max(&self) -> Option<usize> {
        // Records that the server has are not sent again because of one that it refuses.
        (self.batch == Batch::Each).then_some(1)
    }
}

/// Requests over connections that are kept alive.
struct Posting {
    post: Post,
    agent: Agent,
    headers: HeaderMap,
    /// The begin of each idempotency key.
    key: String,
}

impl Posting {
    fn send(&self, body: &[u8], first: u64, last: u64) -> Result<(), DeliveryError> {
        let mut request = self.agent.post(&self.post.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.header("Idempotency-Key", format!("{}-{first}-{last}", self.key));
        let mut answer = request.send(body).map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => DeliveryError::fatal(error),
            error => DeliveryError::retry(error),
        })?;
        let status = answer.status();
        let text = read(&mut answer);
        if status.is_success() {
            return Ok(());
        }
        let said = text.lines().next().unwrap_or_default();
        let said: String = said.chars().take(QUOTED_MAX).collect();
        let what = match said.is_empty() {
            true => format!("the answer is {status}"),
            false => format!("the answer is {status}: {said}"),
        };
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            }
            status if status.is_server_error() => {}
            // They say nothing of the records: no record would be taken.
            StatusCode::UNAUTHORIZED
            | StatusCode::PAYMENT_REQUIRED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::GONE => return Err(DeliveryError::fatal(what)),
            status if status.is_client_error() => return Err(DeliveryError::refused(what)),
            _ => return Err(DeliveryError::fatal(what)),
        }
        Err(match retry_after(&answer) {
            Some(delay) => DeliveryError::retry_after(what, delay),
            None => DeliveryError::retry(what),
        })
    }
}

/// Reads the answer, so that the connection can be used again.
fn read(answer: &mut Response<Body>) -> String {
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    // The status says what counts.
    let bytes = body.read_to_vec().unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = seconds.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

impl Destination for Posting {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        let mut body = Vec::new();
        match self.post.batch {
            // It is one record, as the connector says.
            Batch::Each => {
                let mut records = (first..).zip(batch.iter());
                return records.try_for_each(|(number, record)| self.send(record, number, number));
            }
            Batch::Array => {
                for record in batch.iter() {
                    body.push(if body.is_empty() { b'[' } else { b',' });
                    body.extend_from_slice(record);
                }
                body.push(b']');
            }
            Batch::Lines => {
                for (number, record) in (first..).zip(batch.iter()) {
                    if record.contains(&b'\n') {
                        let what = format!("record {number} contains a line end");
                        return Err(DeliveryError::refused(what));
                    }
                    body.extend_from_slice(record);
                    body.push(b'\n');
                }
            }
        }
        self.send(&body, first, last)
    }
}
