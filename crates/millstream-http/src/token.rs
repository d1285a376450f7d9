//! Tokens of requests.

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, StatusCode};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;

/// Checks the header `Authorization: Bearer TOKEN`, if a token is required.
pub(crate) fn check_bearer(token: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(token) = token else {
        return Ok(());
    };
    match bearer(headers) {
        Some(given) => check_given(token, given),
        None => {
            let line = "a token is required: Authorization: Bearer TOKEN";
            Err(Refusal::new(StatusCode::UNAUTHORIZED, line))
        }
    }
}

/// The token of the header, if it has one.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let given = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, given) = given.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(given)
}

/// Compares tokens. The time of the comparison depends on the lengths only.
pub(crate) fn check_given(token: &str, given: &[u8]) -> Result<(), Refusal> {
    match bool::from(given.ct_eq(token.as_bytes())) {
        true => Ok(()),
        false => Err(Refusal::new(StatusCode::FORBIDDEN, "the token is wrong")),
    }
}
