//! The requests of a gateway.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, CONTENT_TYPE, EXPECT, HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};

use super::calls::{Interfaces, NotRecorded, Route};
use super::state::State;
use crate::budget::Budget;
use crate::feed::check::Rules;
use crate::feed::clients::Clients;
use crate::feed::connection::{Answer, Connection, Handler, feed};
use crate::origin::check_origin;
use crate::refusal::{self, Refusal, json};
use crate::request_body::{check_encoding, check_length, discard_body, read_body};
use crate::token::check_bearer;

/// What all connections share.
pub(super) struct GatewayHandler {
    pub(super) interfaces: Arc<Interfaces>,
    /// By the path.
    pub(super) feeds: HashMap<String, Feed>,
    pub(super) access: Rules,
    pub(super) body_bytes_max: usize,
    pub(super) budget: Budget,
    pub(super) state: Arc<State>,
}

/// A feed of a journal.
pub(super) struct Feed {
    pub(super) rules: Rules,
    pub(super) members: Arc<Clients>,
}

impl Handler for GatewayHandler {
    fn timeout(&self) -> Duration {
        self.access.timeout
    }

    async fn answer(&self, connection: &Connection, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if request.method() != Method::OPTIONS
            && let Some(Feed { rules, members }) = self.feeds.get(path)
        {
            return feed(rules, members, connection, request);
        }
        let (parts, mut body) = request.into_parts();
        let mut answer = match self.outcome(&parts, &mut body).await {
            Ok(answer) => answer,
            Err(refusal) => {
                // A client that asks before it sends the body sends none.
                let sends = !parts.headers.contains_key(EXPECT);
                if sends && refusal.status != StatusCode::REQUEST_TIMEOUT {
                    discard_body(&mut body).await;
                }
                refusal.answer()
            }
        };
        if let Some(origin) = parts.headers.get(ORIGIN) {
            let headers = answer.headers_mut();
            headers.insert(VARY, HeaderValue::from_static("Origin"));
            if check_origin(&self.access.origins, &parts.headers).is_ok() {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            }
        }
        answer.map(Either::Left)
    }
}

impl GatewayHandler {
    async fn outcome(
        &self,
        request: &Parts,
        body: &mut Incoming,
    ) -> Result<refusal::Answer, Refusal> {
        check_origin(&self.access.origins, &request.headers)?;
        if request.method == Method::OPTIONS && request.headers.contains_key(ORIGIN) {
            return Ok(preflight());
        }
        let route = self.check(request)?;
        let mut reserved = self.budget.reserve();
        let limit = self.access.timeout;
        let arguments = read_body(body, self.body_bytes_max, limit, &mut reserved).await?;
        match route.record(&arguments).await {
            Ok(recorded) => {
                let journal = serde_json::Value::from(recorded.journal);
                let sequence = recorded.sequence;
                Ok(json(format!(
                    "{{\"journal\":{journal},\"sequence\":{sequence}}}\n"
                )))
            }
            Err(NotRecorded::Refused(refusal)) => Err(refusal),
            Err(NotRecorded::Failed(cause)) => {
                let line = format!("the call cannot be recorded: {cause}");
                self.state.fail(cause);
                Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, line))
            }
        }
    }

    /// Checks everything but the body.
    fn check<'a>(&'a self, request: &'a Parts) -> Result<Route<'a>, Refusal> {
        check_bearer(self.access.token.as_deref(), &request.headers)?;
        let route = self.interfaces.route(request.uri.path())?;
        if request.method != Method::POST {
            return Err(Refusal::method("POST", &request.method));
        }
        check_encoding(&request.headers)?;
        if let Some(kind) = request.headers.get(CONTENT_TYPE) {
            let kind = String::from_utf8_lossy(kind.as_bytes());
            let essence = kind.split(';').next().unwrap_or_default().trim();
            if !essence.eq_ignore_ascii_case("application/json") {
                let line = format!("the content type is application/json, not {essence}");
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line));
            }
        }
        check_length(&request.headers, self.body_bytes_max)?;
        Ok(route)
    }
}

/// The answer to a browser that asks whether a page of an accepted origin may post.
fn preflight() -> refusal::Answer {
    let mut answer = refusal::Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}
