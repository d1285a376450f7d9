//! Origins of pages: a browser would let every page send requests to a local port.

use hyper::header::ORIGIN;
use hyper::{HeaderMap, StatusCode};
use millstream_flow::error::Cause;

use crate::refusal::Refusal;

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
