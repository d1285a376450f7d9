//! What all servers of this crate have: the clients that they accept, how many at once, and for how long.

use std::time::Duration;

use hyper::header::ORIGIN;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use millstream_flow::error::Cause;

use crate::address::Bound;
use crate::origin::{
    allow_page, check_host, check_name, check_origin, check_origins, check_own_page, preflight,
};
use crate::places::Limits;
use crate::refusal::{Answer, Refusal};
use crate::token::{bearer, check_bearer, check_given, check_token, missing};
use crate::url;

/// The default for the largest body, and the most that it can be: a body and its frame fit into a segment.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
pub(crate) const BODY_BYTES_LIMIT: usize = 16 << 20;
/// The default for the bytes that wait for one client of a feed.
pub(crate) const CLIENT_BYTES_MAX: usize = 8 << 20;
/// The default for the number of simultaneous connections.
const CONNECTIONS_MAX: usize = 1024;
/// The default for the time in which a client sends a header, sends a body, or reads.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The least: clients of feeds are pinged after half of it.
const TIMEOUT_MIN: Duration = Duration::from_millis(2);

/// What all servers have.
#[derive(Clone, Debug)]
pub(crate) struct ServerRules {
    pub(crate) token: Option<String>,
    /// The origins of pages that are accepted.
    pub(crate) origins: Vec<String>,
    pub(crate) timeout: Duration,
    connections_max: usize,
    /// Whether only this machine can connect over TCP.
    is_local: bool,
}

impl Default for ServerRules {
    fn default() -> Self {
        ServerRules {
            token: None,
            origins: Vec::new(),
            timeout: TIMEOUT,
            connections_max: CONNECTIONS_MAX,
            is_local: false,
        }
    }
}

impl ServerRules {
    pub(crate) fn set_connections_max(&mut self, count: usize) {
        self.connections_max = count.max(1);
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits::clients(self.connections_max)
    }

    /// Notes where the server listens.
    pub(crate) fn set_bound(&mut self, bound: &Bound) {
        self.is_local = bound.is_loopback();
    }

    /// Refuses what no request can match.
    pub(crate) fn check(&self) -> Result<(), Cause> {
        check_token(self.token.as_deref())?;
        check_origins(&self.origins)?;
        if self.timeout < TIMEOUT_MIN {
            Err("the timeout of a server is at least 2 ms".into())
        } else {
            Ok(())
        }
    }

    /// Refuses pages of other origins. Returns the answer to a browser that asks whether a page may send its request,
    /// with one of `methods`.
    pub(crate) fn check_page(
        &self,
        request: &Parts,
        methods: &str,
    ) -> Result<Option<Answer>, Refusal> {
        check_origin(&self.origins, &request.headers)?;
        let asks = request.method == Method::OPTIONS && request.headers.contains_key(ORIGIN);
        Ok(asks.then(|| preflight(methods)))
    }

    /// Lets a page of an accepted origin read the answer to its request.
    pub(crate) fn allow_page(&self, request: &HeaderMap, answer: &mut HeaderMap) {
        allow_page(&self.origins, request, answer);
    }

    /// Refuses requests without the token in their header.
    pub(crate) fn check_bearer(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        check_bearer(self.token.as_deref(), headers)
    }

    /// Refuses pages that read from a local server under a name of their own.
    pub(crate) fn check_name(&self, request: &Parts) -> Result<(), Refusal> {
        if self.is_local {
            check_host(&self.origins, &request.headers)
        } else {
            Ok(())
        }
    }

    /// Refuses requests that change something, unless they have the token in their header and are of a program or of
    /// the server's own page. A browser sends that header for no page of another origin: this server does not allow it.
    pub(crate) fn check_action(&self, request: &Parts) -> Result<(), Refusal> {
        check_own_page(&request.headers)?;
        if self.is_local {
            check_name(&self.origins, &request.headers)?;
        }
        if self.token.is_none() {
            let line = "this server only reads: it was started without a token";
            return Err(Refusal::new(StatusCode::FORBIDDEN, line));
        }
        self.check_bearer(&request.headers)
    }

    /// Refuses requests for a feed without the token in their header, or in the parameter `token` of their query.
    /// Without a token, pages are refused that read from a local server under a name of their own.
    pub(crate) fn check_reader(&self, request: &Parts) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return self.check_name(request);
        };
        if let Some(given) = bearer(&request.headers) {
            return check_given(token, given);
        }
        match url::parameter(request.uri.query().unwrap_or_default(), "token")? {
            Some(given) => check_given(token, given.as_bytes()),
            None => Err(missing(", or ?token=TOKEN")),
        }
    }
}
