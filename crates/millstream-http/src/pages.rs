//! A server of pages and figures that are in memory: GET requests, and server-sent events that carry the newest figures
//! only.
//!
//! It has the checks of the other servers of this crate: a token, the origin of a page, the name of the host against
//! DNS rebinding, limits for headers, connections and time. A client that does not read misses events, and is
//! disconnected after the time limit.

mod latest;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Full};
pub use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use millstream_flow::error::Cause;
use tokio::sync::watch;

use crate::address::Bound;
use crate::connection::{HalfClosed, serve};
use crate::places::{Limits, Place, Purpose};
use crate::refusal::Refusal;
use crate::rules::ServerRules;
use crate::server::{Server, Stopped};
use crate::stream::Socket;
use crate::url;

use latest::Latest;

/// The simultaneous connections.
const LIMITS: Limits = Limits {
    clients: 64,
    probes: 16,
    unauthenticated: 48,
    of_address: 32,
    patience: Duration::ZERO,
};
/// The default for the time in which a client sends a header, or reads.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A server of pages that is not bound yet. See [`pages`].
#[derive(Clone, Debug)]
pub struct Pages {
    address: String,
    rules: ServerRules,
    open: bool,
}

/// A server of pages that is bound, and does not answer yet.
pub struct BoundPages {
    bound: Bound,
    rules: ServerRules,
}

/// A server of pages at work. It stops when it is dropped.
pub struct PagesServer(#[expect(dead_code, reason = "the server stops when it is dropped")] Server);

/// A request that passed the checks of the server.
pub struct PageRequest<'a>(&'a Parts);

/// The answer to a request.
pub struct Page(Response<Either<Full<Bytes>, Latest>>);

/// The answer to what a POST asks for, which may need another thread. Other requests are answered meanwhile.
pub type PendingPage = Pin<Box<dyn Future<Output = Page> + Send>>;

/// Answers requests, from memory and at once: one thread serves all clients.
pub trait PageHandler: Send + Sync + 'static {
    /// The name of the server in the log, and of its thread.
    const NAME: &'static str;

    /// Whether a path needs no token, because its answer has no data of the user.
    fn is_public(&self, path: &str) -> bool;

    /// Whether a path is asked for by programs that look from time to time. Its requests have places of their own.
    fn is_probe(&self, _path: &str) -> bool {
        false
    }

    /// Answers a request; `None` for a path that there is not.
    fn answer(&self, request: &PageRequest<'_>) -> Option<Page>;

    /// Whether a POST to a path does something. Such requests need the token in their header, also where reading needs
    /// none.
    fn is_action(&self, _path: &str) -> bool {
        false
    }

    /// Does what a POST asks for, and does not block. Called for the paths of [`is_action`](Self::is_action) only.
    fn act(&self, _request: &PageRequest<'_>) -> Option<PendingPage> {
        None
    }
}

/// Serves pages on `address`, `host:port` or `unix:PATH`. An address that other machines can reach needs a token, or
/// [`Pages::open`].
#[must_use]
pub fn pages(address: &str) -> Pages {
    let mut rules = ServerRules::default();
    rules.timeout = TIMEOUT;
    Pages {
        address: address.to_owned(),
        rules,
        open: false,
    }
}

impl Pages {
    /// Requires the header `Authorization: Bearer TOKEN`, or the parameter `token` of the query.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.rules.token = Some(token.to_owned());
        self
    }

    /// Lets other machines read without a token.
    #[must_use]
    pub fn open(mut self, open: bool) -> Self {
        self.open = open;
        self
    }

    /// Whether a token is required.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.rules.token.is_some()
    }

    /// Sets the time in which a client sends a header, or reads; a slower one is disconnected. The default is 15 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = timeout;
        self
    }

    /// Binds the address.
    ///
    /// # Errors
    /// An address that is in use, or none; one that other machines can reach, without a token; a token that no header
    /// can have.
    pub fn bind(mut self) -> Result<BoundPages, Cause> {
        self.rules.check()?;
        let bound = Bound::bind(&self.address)?;
        self.rules.set_bound(&bound);
        let reachable = matches!(bound, Bound::Tcp(_)) && !bound.is_loopback();
        if reachable && self.rules.token.is_none() && !self.open {
            return Err(format!(
                "{}: other machines can reach this address: it needs a token, or to be declared open",
                self.address
            )
            .into());
        }
        Ok(BoundPages {
            bound,
            rules: self.rules,
        })
    }
}

impl BoundPages {
    /// Returns the address, with the port that the system has chosen if it was 0.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn address(&self) -> std::io::Result<String> {
        self.bound.address()
    }

    /// Starts the thread that answers requests, and runs `background`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn serve<H: PageHandler>(
        self,
        handler: Arc<H>,
        background: impl Future<Output = ()> + Send + 'static,
    ) -> Result<PagesServer, Cause> {
        let rules = Arc::new(self.rules);
        let server = Server::start(
            H::NAME,
            self.bound,
            LIMITS,
            background,
            move |socket, place, stopped| {
                let rules = Arc::clone(&rules);
                let handler = Arc::clone(&handler);
                connection(socket, place, rules, handler, stopped)
            },
        )?;
        Ok(PagesServer(server))
    }
}

impl PageRequest<'_> {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.uri.path()
    }

    /// Returns the first parameter of the query with this name, decoded; `None` also for one that cannot be decoded.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let query = self.0.uri.query().unwrap_or_default();
        let found = url::parameter(query, name).ok().flatten();
        found.map(|value| value.into_owned())
    }

    /// Whether a header contains a text.
    #[must_use]
    pub fn header_contains(&self, name: &str, text: &str) -> bool {
        let mut values = self.0.headers.get_all(name).iter();
        values.any(|value| value.to_str().is_ok_and(|value| value.contains(text)))
    }
}

impl Page {
    /// An answer of the media type `kind`.
    #[must_use]
    pub fn new(kind: &'static str, body: impl Into<Bytes>) -> Self {
        let mut response = Response::new(Either::Left(Full::new(body.into())));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Page(response).with("cache-control", "no-store")
    }

    /// The answer 503: what is asked for is not ready.
    #[must_use]
    pub fn unavailable(line: &str) -> Self {
        Self::line(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    /// The answer 409: what was asked for cannot be done now.
    #[must_use]
    pub fn conflict(line: &str) -> Self {
        Self::line(StatusCode::CONFLICT, line)
    }

    /// The answer 400: the parameters are not valid.
    #[must_use]
    pub fn invalid(line: &str) -> Self {
        Self::line(StatusCode::BAD_REQUEST, line)
    }

    /// The answer 404: what the parameters name does not exist.
    #[must_use]
    pub fn missing(line: &str) -> Self {
        Self::line(StatusCode::NOT_FOUND, line)
    }

    fn line(status: StatusCode, line: &str) -> Self {
        let mut page = Page::new("text/plain; charset=utf-8", format!("{line}\n"));
        *page.0.status_mut() = status;
        page
    }

    /// This answer, which waits for nothing.
    #[must_use]
    pub fn ready(self) -> PendingPage {
        Box::pin(std::future::ready(self))
    }

    /// Server-sent events: each new value of `newest`, which is the whole text of an event. A client that does not keep
    /// up misses values.
    #[must_use]
    pub fn events(newest: watch::Receiver<Bytes>) -> Self {
        let mut response = Response::new(Either::Right(Latest::new(newest)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Page(response)
    }

    /// Sets a header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        let name = HeaderName::from_static(name);
        let value = HeaderValue::from_static(value);
        self.0.headers_mut().insert(name, value);
        self
    }
}

async fn connection<H: PageHandler>(
    socket: Socket,
    place: Arc<Place>,
    rules: Arc<ServerRules>,
    handler: Arc<H>,
    stopped: Stopped,
) {
    let timeout = rules.timeout;
    let answer = |request: Request<Incoming>| {
        let (parts, _) = request.into_parts();
        let page = checked(&rules, &*handler, &place, &parts);
        async {
            match page {
                Ok(page) => page.await.0,
                Err(refusal) => refusal.answer().map(Either::Left),
            }
        }
    };
    let client = (socket, &place);
    serve(H::NAME, client, timeout, HalfClosed::Gone, answer, stopped).await;
}

fn checked<H: PageHandler>(
    rules: &ServerRules,
    handler: &H,
    place: &Place,
    parts: &Parts,
) -> Result<PendingPage, Refusal> {
    let path = parts.uri.path();
    if parts.method == Method::POST && handler.is_action(path) {
        rules.check_action(parts)?;
        place.confirm(Purpose::Client)?;
        let page = handler.act(&PageRequest(parts));
        return page.ok_or_else(|| Refusal::path(path));
    }
    // The answer to a browser that asks whether another page may read is the refusal of that page.
    rules.check_page(parts, "GET")?;
    let is_public = handler.is_public(path);
    if is_public {
        rules.check_name(parts)?
    } else {
        rules.check_reader(parts)?
    }
    if handler.is_probe(path) {
        place.confirm(Purpose::Probe)?;
    } else if !is_public || rules.token.is_none() {
        place.confirm(Purpose::Client)?;
    }
    if handler.is_action(path) {
        return Err(Refusal::method("POST", &parts.method));
    }
    if parts.method != Method::GET {
        return Err(Refusal::method("GET", &parts.method));
    }
    let page = handler.answer(&PageRequest(parts)).map(Page::ready);
    page.ok_or_else(|| Refusal::path(path))
}
