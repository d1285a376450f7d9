//! Pages of browsers: a browser would let every page send requests to a local port.
//!
//! Browsers send the origin of a page with each POST, each WebSocket and each request to another origin. The one
//! request without it is a GET to the origin of the page itself, whose name may have been bound to this machine after
//! the page was loaded: see [`check_host`].

use std::net::{IpAddr, Ipv6Addr};

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HOST, HeaderValue, ORIGIN, VARY,
};
use hyper::{HeaderMap, StatusCode};
use millstream_flow::error::Cause;

use crate::refusal::{Answer, Refusal};

/// Refuses what no page has as its origin.
pub(crate) fn check_origins(origins: &[String]) -> Result<(), Cause> {
    let wrong = |origin: &&String| {
        origin.as_str() != "*" && (!origin.contains("://") || origin.ends_with('/'))
    };
    match origins.iter().find(wrong) {
        Some(origin) => Err(format!(
            "an origin is like https://example.org:8080, or *, not \"{origin}\""
        )
        .into()),
        None => Ok(()),
    }
}

/// Refuses pages of other origins. Requests without an origin are of programs.
pub(crate) fn check_origin(origins: &[String], headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(ORIGIN).map(|origin| origin.as_bytes()) else {
        return Ok(());
    };
    let accepted = |listed: &String| listed == "*" || listed.as_bytes() == origin;
    if origins.iter().any(accepted) {
        return Ok(());
    }
    let origin = String::from_utf8_lossy(origin);
    let line = format!("pages of the origin {origin} are not accepted");
    Err(Refusal::new(StatusCode::FORBIDDEN, line))
}

/// Refuses requests of pages that this server has not sent itself: the origin of a page is that of the host to which it
/// sends.
pub(crate) fn check_own_page(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = String::from_utf8_lossy(origin.as_bytes());
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let host = headers.get(HOST).map(|host| host.as_bytes());
    if host.is_some() && authority.map(str::as_bytes) == host {
        return Ok(());
    }
    let line = format!("pages of the origin {origin} are not accepted");
    Err(Refusal::new(StatusCode::FORBIDDEN, line))
}

/// Refuses a GET to a local server by a name that is not one of this machine, nor of an accepted origin: a page whose
/// name was bound to 127.0.0.1 after it was loaded (DNS rebinding).
pub(crate) fn check_host(origins: &[String], headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) {
        Ok(())
    } else {
        check_name(origins, headers)
    }
}

/// Refuses requests to a local server by a name that is not one of this machine, nor of an accepted origin, also those
/// of pages.
pub(crate) fn check_name(origins: &[String], headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(host) = headers.get(HOST) else {
        return Ok(());
    };
    let host = String::from_utf8_lossy(host.as_bytes());
    let name = without_port(&host);
    let is_local = name.eq_ignore_ascii_case("localhost") || is_address(name);
    let listed = |origin: &String| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        origin == "*" || authority.is_some_and(|it| without_port(it).eq_ignore_ascii_case(name))
    };
    if is_local || origins.iter().any(listed) {
        return Ok(());
    }
    let line = format!(
        "the host {name} is not accepted: neither an address, nor localhost, nor that of an accepted origin"
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, line))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    }
}

/// The answer to a browser that asks whether a page of an accepted origin may send its request.
pub(crate) fn preflight(methods: &str) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, methods),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key, last-event-id",
        ),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        // They are names of methods and headers.
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Lets a page of an accepted origin read the answer to its request.
pub(crate) fn allow_page(origins: &[String], request: &HeaderMap, answer: &mut HeaderMap) {
    let Some(origin) = request.get(ORIGIN) else {
        return;
    };
    answer.insert(VARY, HeaderValue::from_static("Origin"));
    if check_origin(origins, request).is_ok() {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        let readable = HeaderValue::from_static("idempotent-replayed");
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, readable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_page_may_act() {
        let accepted = |origin: Option<&'static str>| {
            let mut headers =
                HeaderMap::from_iter([(HOST, HeaderValue::from_static("127.0.0.1:8080"))]);
            if let Some(origin) = origin {
                headers.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            check_own_page(&headers).is_ok()
        };
        assert!(accepted(None));
        assert!(accepted(Some("http://127.0.0.1:8080")));
        for other in ["http://127.0.0.1:8081", "https://evil.example", "null", ""] {
            assert!(!accepted(Some(other)), "{other}");
        }
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("http://a"))]);
        assert!(check_own_page(&headers).is_err());
    }

    #[test]
    fn names_of_other_machines_are_refused() {
        let accepted = |host: &'static str, origins: &[&str]| {
            let origins: Vec<String> = origins.iter().map(|it| (*it).to_owned()).collect();
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            check_host(&origins, &headers).is_ok()
        };
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "localhost:1",
            "LOCALHOST",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(accepted(host, &[]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.",
            "",
            "[x]",
            "::1]",
        ] {
            assert!(!accepted(host, &["https://shop.example"]), "{host}");
        }
        assert!(accepted("Shop.example:8443", &["https://shop.example"]));
        assert!(accepted("shop.example", &["https://shop.example:8443"]));
        assert!(accepted("evil.example", &["*"]));
        assert!(check_host(&[], &HeaderMap::new()).is_ok());
    }
}
