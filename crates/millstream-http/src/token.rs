//! Tokens of requests.

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, StatusCode};
use millstream_flow::error::Cause;
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;

/// Refuses a token that no header can have.
pub(crate) fn check_token(token: Option<&str>) -> Result<(), Cause> {
    let visible = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_some_and(|token| token.is_empty() || !visible(token)) {
        Err("a token is one or more visible ASCII characters".into())
    } else {
        Ok(())
    }
}

/// Checks the header `Authorization: Bearer TOKEN`, if a token is required.
pub(crate) fn check_bearer(token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = token else {
        return Ok(());
    };
    match bearer(headers) {
        Some(given) => check_given(token, given),
        None => Err(missing("")),
    }
}

/// The refusal of a request without a token; `or` names another way to send it.
pub(crate) fn missing(or: &str) -> Refusal {
    let line = format!("a token is required: Authorization: Bearer TOKEN{or}");
    Refusal::new(StatusCode::UNAUTHORIZED, line)
}

/// The token of the header, if it has one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let given = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, given) = given.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(given)
}

/// Compares tokens. The time of the comparison depends on the lengths only.
pub(crate) fn check_given(token: &str, given: &[u8]) -> Result<(), Refusal> {
    if bool::from(given.ct_eq(token.as_bytes())) {
        Ok(())
    } else {
        Err(Refusal::new(StatusCode::FORBIDDEN, "the token is wrong"))
    }
}
