//! What a feed serves: the checks of a request.

use std::time::Duration;

use hyper::header::{CONNECTION, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use millstream_flow::error::Cause;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::origin::{check_origin, check_origins};
use crate::refusal::Refusal;
use crate::token::{bearer, check_given};

/// What a feed serves.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) origins: Vec<String>,
    pub(crate) timeout: Duration,
}

/// How a client wants the feed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A WebSocket; the answer has this key.
    WebSocket { accept: String },
    /// Server-sent events.
    Events,
}

impl Rules {
    /// Refuses what no request can match.
    pub(crate) fn check(&self) -> Result<(), Cause> {
        if !self.path.starts_with('/') {
            return Err(format!("the path begins with /, unlike \"{}\"", self.path).into());
        }
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if let Some(token) = &self.token
            && (token.is_empty() || !token.bytes().all(unreserved))
        {
            return Err(
                "a token of a feed or a gateway is one or more letters, digits, -, ., _ and ~"
                    .into(),
            );
        }
        check_origins(&self.origins)?;
        if self.timeout < Duration::from_millis(2) {
            return Err("the timeout of a feed is at least 2 ms".into());
        }
        Ok(())
    }

    /// Checks a request. Returns how the client wants the feed.
    pub(super) fn protocol(&self, request: &Parts) -> Result<Protocol, Refusal> {
        check_origin(&self.origins, &request.headers)?;
        self.check_token(request)?;
        let path = request.uri.path();
        if path != self.path {
            return Err(Refusal::path(path));
        }
        if request.method != Method::GET {
            return Err(Refusal::method("GET", &request.method));
        }
        let headers = &request.headers;
        if !has_word(headers, &UPGRADE, "websocket") || !has_word(headers, &CONNECTION, "upgrade") {
            return Ok(Protocol::Events);
        }
        if headers
            .get(SEC_WEBSOCKET_VERSION)
            .map(|version| version.as_bytes())
            != Some(b"13")
        {
            let line = "the version of WebSocket is 13: Sec-WebSocket-Version: 13";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
        }
        let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
            let line = "a WebSocket needs the header Sec-WebSocket-Key";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
        };
        Ok(Protocol::WebSocket {
            accept: derive_accept_key(key.as_bytes()),
        })
    }

    fn check_token(&self, request: &Parts) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let query = request.uri.query().unwrap_or_default();
        let in_query = || {
            let mut parameters = query.split('&');
            parameters.find_map(|parameter| parameter.strip_prefix("token="))
        };
        let given = bearer(&request.headers).or_else(|| in_query().map(str::as_bytes));
        let Some(given) = given else {
            let line = "a token is required: Authorization: Bearer TOKEN, or ?token=TOKEN";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, line));
        };
        check_given(token, given)
    }
}

/// True if the list in a header has `word`, in upper or lower case.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|listed| listed.trim().eq_ignore_ascii_case(word))
}
