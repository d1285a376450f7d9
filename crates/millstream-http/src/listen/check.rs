//! The checks of a request before its body is read.

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};

use super::body::Body;
use super::rules::Rules;
use crate::json::{is_json_document, is_json_lines};
use crate::places::{Place, Purpose};
use crate::refusal::Refusal;
use crate::request_body::{check_length, content_type, is_gzip};
use crate::url::UrlPath;

/// How a request is read.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) path: &'a UrlPath,
    /// The client declares lines of JSON.
    pub(super) lines: bool,
    pub(super) gzip: bool,
}

/// Checks everything but the origin, the signature and the body. The path counts after the token: it is not checked
/// before.
pub(super) fn check<'a>(
    rules: &Rules,
    path: Result<&'a UrlPath, Refusal>,
    place: &Place,
    request: &Parts,
) -> Result<Reading<'a>, Refusal> {
    rules.server.check_bearer(&request.headers)?;
    // A request whose signature is wrong needs no secret.
    if rules.signature.is_none() {
        place.confirm(Purpose::Client)?;
    }
    let path = path?;
    if !rules.methods.iter().any(|it| request.method == it.as_str()) {
        return Err(Refusal::method(&rules.allowed(), &request.method));
    }
    let gzip = is_gzip(&request.headers)?;
    let lines = check_type(rules.body, &request.headers)?;
    check_length(&request.headers, rules.body_bytes_max)?;
    Ok(Reading { path, lines, gzip })
}

/// The path of a request, as the source has it.
pub(super) fn path_of<'a>(rules: &'a Rules, request: &Parts) -> Result<&'a UrlPath, Refusal> {
    let path = request.uri.path();
    for known in &rules.paths {
        if known.is_path_of(path)? {
            return Ok(known);
        }
    }
    Err(Refusal::path(path))
}

/// Whether a request is a health check; the methods are GET and HEAD.
pub(super) fn is_health(rules: &Rules, request: &Parts) -> Result<bool, Refusal> {
    let Some(health) = &rules.health else {
        return Ok(false);
    };
    let is_read = request.method == Method::GET || request.method == Method::HEAD;
    Ok(is_read && health.is_path_of(request.uri.path())?)
}

/// Checks the content type. Returns whether the client declares lines of JSON.
fn check_type(body: Body, headers: &HeaderMap) -> Result<bool, Refusal> {
    let Some(essence) = content_type(headers) else {
        return Ok(false);
    };
    let expected = match body {
        Body::Json if is_json_lines(&essence) => return Ok(true),
        Body::Json if is_json_document(&essence) => return Ok(false),
        Body::Form if essence == "application/x-www-form-urlencoded" => return Ok(false),
        Body::Text if essence.starts_with("text/") => return check_charset(headers),
        Body::Lines | Body::Bytes => return Ok(false),
        Body::Json => "application/json or application/x-ndjson",
        Body::Form => "application/x-www-form-urlencoded",
        Body::Text => "text/plain",
    };
    let line = format!("the content type is {expected}, not {essence}");
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line))
}

/// Refuses texts in other characters than those of UTF-8. Returns that there are no lines of JSON.
fn check_charset(headers: &HeaderMap) -> Result<bool, Refusal> {
    let kind = headers.get(hyper::header::CONTENT_TYPE);
    let kind = kind.map(|kind| String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase());
    let charset = kind.iter().flat_map(|kind| kind.split(';').skip(1));
    let charset = charset.filter_map(|it| it.trim().strip_prefix("charset="));
    for charset in charset.map(|charset| charset.trim_matches('"')) {
        if !["utf-8", "utf8", "us-ascii"].contains(&charset) {
            let line = format!("the characters of a text are those of UTF-8, not {charset}");
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line));
        }
    }
    Ok(false)
}
