//! The requests of a gateway.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use millstream_flow::error::chain;
use tokio::time::timeout;

use super::calls::{Asked, FEEDS, Interfaces, Recorded, Route, Stopped};
use super::intake::NotRecorded;
use super::once::{REPLAYED, key_of};
use super::queries::{self, STATE};
use super::search::Answer as Found;
use super::state::State;
use crate::budget::Budget;
use crate::feed::clients::Clients;
use crate::feed::connection::{Answer, Connection, Handler, feed};
use crate::places::Purpose;
use crate::refusal::{self, Refusal, json};
use crate::request_body::{
    check_encoding, check_length, content_type, read_body, refuse_body, refuse_head,
};
use crate::rules::ServerRules;
use crate::url::{parameter, segments};

/// How long a request waits for the answer of its call or for followers, in seconds.
const ANSWER_S: f64 = 10.0;
/// The most followers that a request may wait for.
const FOLLOWERS_MAX: usize = 64;
/// The longest time that a request may set.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What all connections share.
pub(super) struct GatewayHandler {
    pub(super) interfaces: Arc<Interfaces>,
    /// By name.
    pub(super) feeds: HashMap<String, Arc<Clients>>,
    /// The outputs of the services that are asked, by name.
    pub(super) states: HashMap<String, PathBuf>,
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
        if let Some((output, query)) = self.state_of(&path)? {
            self.rules.check_reader(request)?;
            connection.place.confirm(Purpose::Client)?;
            let text = request.uri.query().unwrap_or_default();
            return Ok(queries::answer(output, &query, text)
                .await?
                .map(Either::Left));
        }
        let (first, second) = two_segments(&path)?;
        if first == FEEDS
            && let Some(clients) = self.feeds.get(&*second)
        {
            self.rules.check_reader(request)?;
            connection.place.confirm(Purpose::Client)?;
            return feed(self.rules.timeout, clients, connection, request);
        }
        self.rules.check_bearer(&request.headers)?;
        connection.place.confirm(Purpose::Client)?;
        let route = self.interfaces.route(&first, &second)?;
        self.check_call(request)?;
        let waits = Waits::of(request.uri.query().unwrap_or_default())?;
        let asked = Asked {
            key: key_of(&request.headers)?,
            answer: waits.answer,
        };
        let answer = match self.call(&route, body, &asked).await {
            Ok(recorded) => answer(recorded, &waits).await,
            Err(refusal) => refuse_body(refusal, body).await,
        };
        Ok(answer.map(Either::Left))
    }

    /// The service and the query of a path `/state/NAME` or `/state/NAME/QUERY`.
    fn state_of(&self, path: &str) -> Result<Option<(PathBuf, String)>, Refusal> {
        let segments = segments(path)?;
        let (name, query) = match &segments[..] {
            [root, first, name] if root.is_empty() && first == STATE => (name, ""),
            [root, first, name, query] if root.is_empty() && first == STATE => (name, &**query),
            _ => return Ok(None),
        };
        match self.states.get(&**name) {
            Some(output) => Ok(Some((output.clone(), query.to_owned()))),
            None => {
                let mut known: Vec<&str> = self.states.keys().map(String::as_str).collect();
                known.sort_unstable();
                let known = match known[..] {
                    [] => "none".to_owned(),
                    _ => known.join(", "),
                };
                let line = format!("there is no state {name}; there is {known}");
                Err(Refusal::new(StatusCode::NOT_FOUND, line))
            }
        }
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
        asked: &Asked,
    ) -> Result<Recorded<'a>, Refusal> {
        let mut reserved = self.budget.reserve();
        let limit = self.rules.timeout;
        let arguments = read_body(body, self.body_bytes_max, limit, &mut reserved).await?;
        let recorded = route.record(&arguments, asked).await;
        recorded.map_err(|error| match error {
            NotRecorded::Refused(refusal) => refusal,
            NotRecorded::Failed(cause) => {
                let line = format!("the call cannot be recorded: {}", chain(&*cause));
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
            let line = format!(
                "no such path: {path}; a call is /INTERFACE/METHOD, a feed /feeds/NAME, a state /state/NAME"
            );
            Err(Refusal::new(StatusCode::NOT_FOUND, line))
        }
    }
}

/// What a request waits for besides the record of its call.
struct Waits {
    /// `answer=1`: the answer of the call.
    answer: bool,
    /// `wait_follower=N`: followers on other machines.
    followers: usize,
    /// `timeout`, in seconds.
    limit: Duration,
}

impl Waits {
    fn of(query: &str) -> Result<Self, Refusal> {
        let bad = |line: &str| Err(Refusal::new(StatusCode::BAD_REQUEST, line));
        let answer = match parameter(query, "answer")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return bad("the parameter answer is 0 or 1"),
        };
        let followers =
            parameter(query, "wait_follower")?.map_or(Some(0), |count| count.parse().ok());
        let Some(followers) = followers.filter(|count| *count <= FOLLOWERS_MAX) else {
            return bad("the parameter wait_follower is a number of followers, from 0 to 64");
        };
        let seconds = parameter(query, "timeout")?.map_or(Some(ANSWER_S), |text| text.parse().ok());
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match limit.filter(|limit| *limit <= ANSWER_MAX) {
            Some(limit) => Ok(Self {
                answer,
                followers,
                limit,
            }),
            None => bad("the parameter timeout is a number of seconds from 0 to 60"),
        }
    }
}

/// The answer to a request whose call is recorded.
async fn answer(recorded: Recorded<'_>, waits: &Waits) -> refusal::Answer {
    let is_repeated = recorded.is_repeated;
    let mut answer = answer_of(recorded, waits).await;
    if is_repeated {
        let value = HeaderValue::from_static("true");
        answer.headers_mut().insert(REPLAYED, value);
    }
    answer
}

async fn answer_of(recorded: Recorded<'_>, waits: &Waits) -> refusal::Answer {
    let journal = serde_json::Value::from(recorded.journal);
    let sequence = recorded.sequence;
    let head = format!("{{\"journal\":{journal},\"sequence\":{sequence}");
    let failed = |status: StatusCode, line: &str| {
        let line = serde_json::Value::from(line);
        let mut answer = json(format!("{head},\"error\":{line}}}\n"));
        *answer.status_mut() = status;
        answer
    };
    if waits.followers > 0
        && let Err(reason) = recorded.wait_followed(waits.followers, waits.limit).await
    {
        return failed(StatusCode::GATEWAY_TIMEOUT, &reason);
    }
    if !waits.answer {
        return json(format!("{head}}}\n"));
    }
    match timeout(waits.limit, recorded.answer()).await {
        Ok(Ok(Ok(Found::Output(answer)))) => json(format!("{head},\"answer\":{answer}}}\n")),
        Ok(Ok(Ok(Found::Nothing))) => json(format!("{head},\"answer\":null}}\n")),
        Ok(Ok(Ok(Found::Pruned))) => failed(
            StatusCode::GONE,
            "the outputs since the call were pruned; the call is recorded",
        ),
        Ok(Ok(Err(cause))) => failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!(
                "the outputs cannot be read: {}; the call is recorded",
                chain(&*cause)
            ),
        ),
        Ok(Err(Stopped)) => failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "the gateway stops; the call is recorded",
        ),
        Err(_) => failed(
            StatusCode::GATEWAY_TIMEOUT,
            "there was no answer in time; the call is recorded",
        ),
    }
}
