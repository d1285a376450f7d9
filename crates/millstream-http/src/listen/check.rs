//! The checks of a request before its body is read.

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};

use super::body::Body;
use super::rules::Rules;
use crate::places::{Place, Purpose};
use crate::refusal::Refusal;
use crate::request_body::{check_encoding, check_length, content_type};

/// The content types of lines of JSON.
const JSON_LINES: [&str; 3] = [
    "application/x-ndjson",
    "application/jsonl",
    "application/x-jsonlines",
];

/// Checks everything but the origin and the body. Returns whether the client declares lines of JSON.
pub(super) fn check(rules: &Rules, place: &Place, request: &Parts) -> Result<bool, Refusal> {
    rules.server.check_bearer(&request.headers)?;
    place.confirm(Purpose::Client)?;
    rules.path.check_request(request.uri.path())?;
    if request.method != Method::POST {
        return Err(Refusal::method("POST", &request.method));
    }
    let lines = check_type(rules.body, &request.headers)?;
    check_length(&request.headers, rules.body_bytes_max)?;
    Ok(lines)
}

/// Checks content type and encoding. Returns whether the client declares lines of JSON.
fn check_type(body: Body, headers: &HeaderMap) -> Result<bool, Refusal> {
    let unsupported = |line: String| Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line);
    check_encoding(headers)?;
    let Some(essence) = content_type(headers).filter(|_| body == Body::Json) else {
        return Ok(false);
    };
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
