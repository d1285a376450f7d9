//! The connections of a source.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use millstream_flow::error::Cause;

use super::body::items;
use super::check::check;
use super::intake::{Intake, Store};
use super::rules::Rules;
use crate::address::Bound;
use crate::connection::{HalfClosed, serve};
use crate::places::Place;
use crate::refusal::{Answer, Refusal, accepted};
use crate::request_body::{read_body, refuse_body, refuse_head};
use crate::server::{Server, Stopped};
use crate::stream::Socket;

/// The name of the server in the log.
const NAME: &str = "http listen";

/// What all connections share.
struct Shared {
    rules: Rules,
    intake: Arc<Intake>,
}

/// Starts the server of a source.
pub(super) fn start(bound: Bound, rules: Rules, intake: Arc<Intake>) -> Result<Server, Cause> {
    let limits = rules.server.limits();
    let syncing = Arc::clone(&intake);
    let background = async move {
        if let Store::Recorded(recorded) = &syncing.store {
            Arc::clone(recorded).keep_synced().await;
        }
    };
    let shared = Arc::new(Shared { rules, intake });
    Server::start(
        NAME,
        bound,
        limits,
        background,
        move |socket, place, stopped| connection(socket, place, Arc::clone(&shared), stopped),
    )
}

async fn connection(socket: Socket, place: Arc<Place>, shared: Arc<Shared>, stopped: Stopped) {
    let timeout = shared.rules.server.timeout;
    let answer = |request| answer(&shared, &place, request);
    let client = (socket, &place);
    serve(NAME, client, timeout, HalfClosed::Answered, answer, stopped).await;
}

async fn answer(shared: &Shared, place: &Place, request: Request<Incoming>) -> Answer {
    let (parts, mut body) = request.into_parts();
    let mut answer = outcome(shared, place, &parts, &mut body).await;
    let server = &shared.rules.server;
    server.allow_page(&parts.headers, answer.headers_mut());
    answer
}

async fn outcome(shared: &Shared, place: &Place, request: &Parts, body: &mut Incoming) -> Answer {
    let rules = &shared.rules;
    let checked = match rules.server.check_page(request, "POST") {
        Ok(Some(answer)) => return answer,
        Ok(None) => check(rules, place, request),
        Err(refusal) => Err(refusal),
    };
    let lines = match checked {
        Ok(lines) => lines,
        Err(refusal) => return refuse_head(refusal, &request.headers, body).await,
    };
    match receive(shared, lines, body).await {
        Ok(items) => accepted(items),
        Err(refusal) => refuse_body(refusal, body).await,
    }
}

/// Reads the body and accepts its items. Returns their number.
async fn receive(shared: &Shared, lines: bool, body: &mut Incoming) -> Result<usize, Refusal> {
    let (rules, intake) = (&shared.rules, &shared.intake);
    let mut reserved = intake.budget.reserve();
    let limit = rules.server.timeout;
    let bytes = read_body(body, rules.body_bytes_max, limit, &mut reserved).await?;
    let items = items(rules.body, lines, &bytes, rules.check_item.as_ref());
    let items = items.map_err(|line| Refusal::new(StatusCode::BAD_REQUEST, line))?;
    drop((reserved, bytes));
    let count = items.count;
    intake.accept(items).await?;
    Ok(count)
}
