//! How a client wants a feed: the checks of its request.

use hyper::header::{CONNECTION, HeaderName, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::refusal::Refusal;

/// How a client wants the feed.
pub(super) enum Protocol {
    /// A WebSocket; the answer has this key.
    WebSocket { accept: String, upgrade: OnUpgrade },
    /// Server-sent events.
    Events,
}

/// Checks the method and the handshake. Returns how the client wants the feed.
pub(super) fn protocol(request: &mut Parts) -> Result<Protocol, Refusal> {
    let upgrade = request.extensions.remove::<OnUpgrade>();
    let headers = &request.headers;
    if request.method != Method::GET {
        return Err(Refusal::method("GET", &request.method));
    }
    if !has_word(headers, &UPGRADE, "websocket") || !has_word(headers, &CONNECTION, "upgrade") {
        return Ok(Protocol::Events);
    }
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    if version.map(|version| version.as_bytes()) != Some(b"13") {
        let line = "the version of WebSocket is 13: Sec-WebSocket-Version: 13";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        let line = "a WebSocket needs the header Sec-WebSocket-Key";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
    };
    let Some(upgrade) = upgrade else {
        let line = "a WebSocket needs HTTP/1.1";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
    };
    let accept = derive_accept_key(key.as_bytes());
    Ok(Protocol::WebSocket { accept, upgrade })
}

/// True if the list in a header has `word`, in upper or lower case.
fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|listed| listed.trim().eq_ignore_ascii_case(word))
}
