//! A destination of an outbox: records as POST requests, in batches or one by one.
//!
//! Each request has the header `Idempotency-Key: FLOW-SINK-OUTBOX-first-last`. A delivery that is repeated by the same
//! run has the same key. After a crash a batch may be divided differently; with [`Batch::Each`] and [`Batch::Requests`]
//! the key of a record never changes.

mod answer;
mod lanes;
mod oauth;
mod request;

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::durable::escape;
use millstream_flow::framing::Frames;
use millstream_flow::named::DROP_STATE;
use millstream_flow::outbox::{Connector, DeliveryError, Destination, OutboxIdentity};
use ureq::Agent;
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

pub use oauth::OAuth;
pub use request::PostRequest;

use answer::{Failed, quoted, read};
use lanes::Known;
use request::{View, check_url, header, is_request, method};

/// The default for the time of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most requests at a time.
const PARALLEL_MAX: usize = 256;
/// The least number of connections that are kept.
const IDLE_MIN: usize = 3;
/// How many requests of a delivery each of those that are sent at a time has: what a crash repeats is bounded by it.
const OF_EACH: usize = 16;
/// The header by which a server detects a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How records become the body of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// A JSON array of the records, which are JSON documents.
    #[default]
    Array,
    /// One record a line, `application/x-ndjson`.
    Lines,
    /// A request for each record, whose body it is, `application/json`.
    Each,
    /// A request for each record, which is a [`PostRequest`]: its method, URL, headers and key may depend on the item.
    Requests,
}

impl Batch {
    /// Whether each record is a request.
    fn is_each(self) -> bool {
        matches!(self, Batch::Each | Batch::Requests)
    }
}

/// The connector of a destination that is posted to. See [`post`].
#[derive(Clone)]
pub struct Post {
    /// `None`: each record has its own.
    url: Option<String>,
    batch: Batch,
    method: String,
    parallel: usize,
    oauth: Option<OAuth>,
    headers: Vec<(String, String)>,
    timeout: Duration,
    ca: Option<PathBuf>,
}

/// Posts the records of an [`Outbox`](millstream_flow::outbox::Outbox) to `url`, `http://` or `https://`, a JSON array
/// for each batch.
///
/// A status of 2xx acknowledges the records. After 408, 425, 429 and 5xx, and after errors of the connection, the
/// delivery is repeated; the delay is at least that of a `Retry-After` in seconds, at most an hour. After 400, 409,
/// 413, 422 and other 4xx that are about the contents the records are refused: the batch is halved until those that the
/// server does not take are alone, and each fails the flow unless
/// [`Outbox::skip_refused`](millstream_flow::outbox::Outbox::skip_refused) is set. Any other status, 401, 403, 404 and
/// redirects among them, fails the flow. Redirects are not followed.
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
        url: Some(url.to_owned()),
        ..of_batch(Batch::Array)
    }
}

/// Sends the records of an [`Outbox`](millstream_flow::outbox::Outbox) as requests, each a [`PostRequest`] with a URL
/// of its own. Statuses are as for [`post`].
///
/// A header with a secret goes to every server that a URL names: take no URL from data that you do not trust.
#[must_use]
pub fn post_requests() -> Post {
    of_batch(Batch::Requests)
}

fn of_batch(batch: Batch) -> Post {
    Post {
        url: None,
        batch,
        method: Method::POST.to_string(),
        parallel: 1,
        oauth: None,
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
    /// Sets the method: `POST`, `PUT`, `PATCH` or `DELETE`. The default is `POST`.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }
    /// Sends up to `count` requests at a time, at most 256, over as many connections, with [`Batch::Each`] and
    /// [`Batch::Requests`]. Requests of one [key](PostRequest::key) are sent in the order of their records, each after
    /// the one before was acknowledged; others in any order. The default is 1: all requests in the order of the
    /// records.
    ///
    /// A delivery has up to 16 times as many records: after a crash those are sent again that the outbox does not know
    /// to be delivered.
    #[must_use]
    pub fn parallel(mut self, count: usize) -> Self {
        self.parallel = count.clamp(1, PARALLEL_MAX);
        self
    }
    /// Sends the tokens of `oauth` in the header `Authorization: Bearer TOKEN`. A token is fetched again shortly before
    /// its end, and once after a 401. While the token server is away the delivery waits.
    #[must_use]
    pub fn oauth(mut self, oauth: OAuth) -> Self {
        self.oauth = Some(oauth);
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
        if certificates.is_empty() {
            Err(named(&"there is no certificate in PEM"))
        } else {
            Ok(RootCerts::new_with_certs(&certificates))
        }
    }

    fn header_map(&self) -> Result<HeaderMap, String> {
        let kind = match self.batch {
            Batch::Array | Batch::Each | Batch::Requests => "application/json",
            Batch::Lines => "application/x-ndjson",
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        for (name, value) in &self.headers {
            let (name, value) = header(name, value)?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// Refuses what no request can be sent with.
    fn check(&self) -> Result<(), String> {
        if let Some(url) = &self.url {
            check_url(url)?;
        }
        if let Some(oauth) = &self.oauth {
            oauth.check()?;
        }
        if self.parallel > 1 && !self.batch.is_each() {
            Err("requests are parallel where each has one record".to_owned())
        } else {
            method(&self.method).map(drop)
        }
    }
}

impl Connector for Post {
    fn describe(&self) -> String {
        let Some(url) = &self.url else {
            return "http post, a URL for each item".to_owned();
        };
        // Without a password that should not be there.
        let rest = url.split_once("://");
        let shown = rest.and_then(|(scheme, rest)| {
            let end = rest.find('/').unwrap_or(rest.len());
            let at = rest[..end].rfind('@')?;
            Some(format!("{scheme}://{}", &rest[at + 1..]))
        });
        format!("http post {}", shown.as_ref().unwrap_or(url))
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        self.check().map_err(DeliveryError::fatal)?;
        let headers = self.header_map().map_err(DeliveryError::fatal)?;
        let root_certs = self.root_certs().map_err(DeliveryError::fatal)?;
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().root_certs(root_certs).build())
            .timeout_global(Some(self.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(self.parallel.max(IDLE_MIN))
            .max_idle_connections_per_host(self.parallel.max(IDLE_MIN))
            .user_agent(concat!("millstream/", env!("CARGO_PKG_VERSION")))
            .build();
        let flow = escape(&outbox.flow);
        let sink = escape(&outbox.sink);
        Ok(Box::new(Posting {
            sender: Sender {
                agent: Agent::new_with_config(config),
                method: method(&self.method).map_err(DeliveryError::fatal)?,
                headers,
                key: format!("{flow}-{sink}-{}", outbox.id()),
                post: self.clone(),
            },
            known: Known::default(),
        }))
    }
    fn remembers(&self) -> bool {
        false
    }
    fn batch_records_max(&self) -> Option<usize> {
        // Records that the server has are not sent again because of one that it refuses, and few of them after a crash.
        self.batch.is_each().then_some(match self.parallel {
            1 => 1,
            parallel => parallel * OF_EACH,
        })
    }
}

/// Requests over connections that are kept alive.
struct Posting {
    sender: Sender,
    /// What became of the requests of a delivery that was not acknowledged as a whole.
    known: Known,
}

/// Sends one request; threads share it.
struct Sender {
    post: Post,
    agent: Agent,
    method: Method,
    headers: HeaderMap,
    /// The begin of each idempotency key.
    key: String,
}

/// The records that a request has.
#[derive(Clone, Copy)]
struct Numbers {
    first: u64,
    last: u64,
}

impl Sender {
    /// Sends a request; after a 401 once more, with a new token.
    fn send(&self, view: &View<'_>, numbers: Numbers) -> Result<(), Failed> {
        let oauth = self.post.oauth.as_ref();
        let mut rejected = None;
        loop {
            let token = oauth.map(|oauth| oauth.header(&self.agent, rejected.as_ref()));
            let token = token.transpose()?;
            let request = self.request(view, numbers, token.clone())?;
            let sent = if request.method() == Method::DELETE {
                self.agent.run(request.map(|_| ()))
            } else {
                self.agent.run(request)
            };
            let mut answer = sent.map_err(|error| Failed::of_connection(&error))?;
            let body = read(&mut answer);
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            if status == StatusCode::UNAUTHORIZED && token.is_some() && rejected.is_none() {
                rejected = token;
                continue;
            }
            return Err(Failed::of_answer(&answer, &quoted(&body)));
        }
    }

    fn request<'a>(
        &self,
        view: &View<'a>,
        numbers: Numbers,
        token: Option<HeaderValue>,
    ) -> Result<Request<&'a [u8]>, Failed> {
        let url = view.url.or(self.post.url.as_deref());
        let url: Uri = url
            .ok_or_else(|| Failed::Fatal("the record has no URL".to_owned()))?
            .parse()
            .map_err(|_| Failed::Fatal("the URL is none".to_owned()))?;
        let mut request = Request::new(view.body);
        *request.uri_mut() = url;
        *request.method_mut() = match view.method {
            Some(name) => method(name).map_err(Failed::Fatal)?,
            None => self.method.clone(),
        };
        let headers = request.headers_mut();
        let key = format!("{}-{}-{}", self.key, numbers.first, numbers.last);
        let key = HeaderValue::from_str(&key);
        let key = key.map_err(|error| Failed::Fatal(error.to_string()))?;
        headers.insert(IDEMPOTENCY_KEY, key);
        headers.extend(self.headers.clone());
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token);
        }
        for (name, value) in &view.headers {
            let (name, value) = header(name, value).map_err(Failed::Fatal)?;
            headers.insert(name, value);
        }
        Ok(request)
    }

    /// Reads the record of a request.
    fn view<'a>(&self, number: u64, record: &'a [u8]) -> Result<View<'a>, DeliveryError> {
        match (self.post.batch, View::read(record)) {
            (Batch::Requests, Some(view)) => Ok(view),
            (Batch::Requests, None) => Err(of_other_kind(number)),
            (_, _) => Ok(View {
                body: record,
                ..View::default()
            }),
        }
    }
}

/// The error of a record that was written while the sink had other bodies.
fn of_other_kind(number: u64) -> DeliveryError {
    DeliveryError::fatal(format!(
        "record {number} waits in the outbox since the sink had another body=: start the flow once with that one, to deliver it, or drop \
         the sink's state with {DROP_STATE}"
    ))
}

impl Destination for Posting {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        if let Some(oauth) = &self.sender.post.oauth {
            oauth.begin();
        }
        if self.sender.post.batch.is_each() {
            return self.write_each(batch, first);
        }
        let mut body = Vec::new();
        let is_array = self.sender.post.batch == Batch::Array;
        for (number, record) in (first..).zip(batch.iter()) {
            if is_request(record) {
                return Err(of_other_kind(number));
            }
            if is_array {
                body.push(if body.is_empty() { b'[' } else { b',' });
            } else if record.contains(&b'\n') {
                let what = format!("record {number} contains a line end");
                return Err(DeliveryError::refused(what));
            }
            body.extend_from_slice(record);
            if !is_array {
                body.push(b'\n');
            }
        }
        if is_array {
            body.push(b']');
        }
        let view = View {
            body: &body,
            ..View::default()
        };
        let numbers = Numbers { first, last };
        let sent = self.sender.send(&view, numbers);
        sent.map_err(|failed| failed.error(None))
    }
    fn taken(&self) -> Option<usize> {
        (self.sender.post.parallel > 1).then(|| self.known.taken_now())
    }
}

impl Posting {
    /// Sends a request for each record.
    fn write_each(&mut self, batch: &Frames, first: u64) -> Result<(), DeliveryError> {
        let mut views = Vec::with_capacity(batch.len());
        for (number, record) in (first..).zip(batch.iter()) {
            views.push(self.sender.view(number, record)?);
        }
        let records: Vec<_> = views.iter().map(|view| (view.key, view)).collect();
        let sender = &self.sender;
        let parallel = self.sender.post.parallel;
        self.known
            .write(&records, first, parallel, &|number, view| {
                let numbers = Numbers {
                    first: number,
                    last: number,
                };
                sender.send(view, numbers)
            })
    }
}
