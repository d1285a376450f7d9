//! The requests of a gateway.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};

use super::calls::{FEEDS, Interfaces, NotRecorded, Recorded, Route};
use super::state::State;
use crate::budget::Budget;
use crate::feed::clients::Clients;
use crate::feed::connection::{Answer, Connection, Handler, feed};
use crate::refusal::{self, Refusal, json};
use crate::request_body::{
    check_encoding, check_length, content_type, read_body, refuse_body, refuse_head,
};
use crate::rules::ServerRules;
use crate::url::segments;

/// What all connections share.
pub(super) struct GatewayHandler {
    pub(super) interfaces: Arc<Interfaces>,
    /// By name.
    pub(super) feeds: HashMap<String, Arc<Clients>>,
    pub(super) rules: ServerRules,
    pub(super) body_bytes_max: usize,
    pub(super) budget: Budget,
    pub(super) state: Arc<State>,
}

impl Handler for GatewayHandler {
    const NAME: &'static str = "http gateway";

    fn timeout(&self) -> Duration {
        self.rules.timeout
    }

    async fn answer(&self, connection: &Connection, request: Request<Incoming>) -> Answer {
        let (mut parts, mut body) = request.into_parts();
        let mut answer = match self.outcome(connection, &mut parts, &mut body).await {
            Ok(answer) => answer,
            Err(refusal) => {
                let refused = refuse_head(refusal, &parts.headers, &mut body);
                refused.await.map(Either::Left)
            }
        };
        self.rules.allow_page(&parts.headers, answer.headers_mut());
        answer
    }
}

impl GatewayHandler {
    /// Answers a request, or refuses it before its body is read.
    async fn outcome(
        &self,
        connection: &Connection,
        request: &mut Parts,
        body: &mut Incoming,
    ) -> Result<Answer, Refusal> {
        if let Some(answer) = self.rules.check_page(request, "GET, POST")? {
            return Ok(answer.map(Either::Left));
        }
        let path = request.uri.path().to_owned();
        let (first, second) = two_segments(&path)?;
        if first == FEEDS
            && let Some(clients) = self.feeds.get(&*second)
        {
            self.rules.check_reader(request)?;
            return feed(self.rules.timeout, clients, connection, request);
        }
        self.rules.check_bearer(&request.headers)?;
        let route = self.interfaces.route(&first, &second)?;
        self.check_call(request)?;
        let answer = match self.call(&route, body).await {
            Ok(recorded) => answer(&recorded),
            Err(refusal) => refuse_body(refusal, body).await,
        };
        Ok(answer.map(Either::Left))
    }

    /// Checks the head of a call.
    fn check_call(&self, request: &Parts) -> Result<(), Refusal> {
        if request.method != Method::POST {
            return Err(Refusal::method("POST", &request.method));
        }
        check_encoding(&request.headers)?;
        if let Some(kind) = content_type(&request.headers)
            && kind != "application/json"
        {
            let line = format!("the content type is application/json, not {kind}");
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line));
        }
        check_length(&request.headers, self.body_bytes_max)
    }

    /// Reads the arguments of a call, and records it.
    async fn call<'a>(
        &self,
        route: &Route<'a>,
        body: &mut Incoming,
    ) -> Result<Recorded<'a>, Refusal> {
        let mut reserved = self.budget.reserve();
        let limit = self.rules.timeout;
        let arguments = read_body(body, self.body_bytes_max, limit, &mut reserved).await?;
        route.record(&arguments).await.map_err(|error| match error {
            NotRecorded::Refused(refusal) => refusal,
            NotRecorded::Failed(cause) => {
                let line = format!("the call cannot be recorded: {cause}");
                self.state.fail(cause);
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, line)
            }
        })
    }
}

/// The two segments of a path, decoded.
fn two_segments(path: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), Refusal> {
    match <[_; 3]>::try_from(segments(path)?) {
        Ok([root, first, second]) if root.is_empty() => Ok((first, second)),
        _ => {
            let line =
                format!("no such path: {path}; a call is /INTERFACE/METHOD, a feed /feeds/NAME");
            Err(Refusal::new(StatusCode::NOT_FOUND, line))
        }
    }
}

/// The answer to a call.
fn answer(recorded: &Recorded<'_>) -> refusal::Answer {
    let journal = serde_json::Value::from(recorded.journal);
    let sequence = recorded.sequence;
    json(format!(
        "{{\"journal\":{journal},\"sequence\":{sequence}}}\n"
    ))
}
