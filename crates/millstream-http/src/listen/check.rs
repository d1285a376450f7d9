//! The checks of a request before its body is read.

use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use subtle::ConstantTimeEq;

use super::body::Body;
use super::refusal::Refusal;
use super::rules::Rules;

/// The content types of lines of JSON.
const JSON_LINES: [&str; 3] = [
    "application/x-ndjson",
    "application/jsonl",
    "application/x-jsonlines",
];

/// Checks everything but the body. Returns whether the client declares lines of JSON.
pub(super) fn check(rules: &Rules, request: &Parts) -> Result<bool, Refusal> {
    check_token(rules.token.as_deref(), &request.headers)?;
    let path = request.uri.path();
    if path != rules.path {
        let line = format!("no such path: {path}");
        return Err(Refusal::new(StatusCode::NOT_FOUND, line));
    }
    if request.method != Method::POST {
        let line = format!("the method is POST, not {}", request.method);
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, line));
    }
    let lines = check_type(rules.body, &request.headers)?;
    let length = text(&request.headers, CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if length.is_some_and(|length: u64| length > rules.body_bytes_max as u64) {
        return Err(too_large(rules.body_bytes_max));
    }
    Ok(lines)
}

pub(super) fn too_large(body_bytes_max: usize) -> Refusal {
    let line = format!("the body is larger than {body_bytes_max} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line)
}

fn text(headers: &HeaderMap, name: hyper::header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn check_token(token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = token else {
        return Ok(());
    };
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = given.and_then(|given| given.split_at_checked("Bearer ".len()));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let Some((_, given)) = bearer else {
        let line = "a token is required: Authorization: Bearer TOKEN";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, line));
    };
    // The time of the comparison depends on the lengths only.
    match bool::from(given.ct_eq(token.as_bytes())) {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::FORBIDDEN, "the token is wrong")),
    }
}

/// Checks content type and encoding. Returns whether the client declares lines of JSON.
fn check_type(body: Body, headers: &HeaderMap) -> Result<bool, Refusal> {
    let unsupported = |line: String| Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line);
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let encoding = String::from_utf8_lossy(encoding.as_bytes());
        return Err(unsupported(format!(
            "the content encoding {encoding} is not supported"
        )));
    }
    let Some(kind) = headers.get(CONTENT_TYPE).filter(|_| body == Body::Json) else {
        return Ok(false);
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let essence = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if JSON_LINES.contains(&essence.as_str()) {
        return Ok(true);
    }
    match essence == "application/json" || essence.ends_with("+json") {
        true => Ok(false),
        false => Err(unsupported(format!(
            "the content type is application/json or application/x-ndjson, not {essence}"
        ))),
    }
}
