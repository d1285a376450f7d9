//! The connections of a source.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use millstream_flow::error::Cause;
use millstream_journal::clock::wall_ns;

use super::body::{Item, Items, items};
use super::check::{Reading, check, is_health, path_of};
use super::desk::Desk;
use super::intake::{Intake, Store};
use super::rules::Rules;
use crate::address::Bound;
use crate::connection::{HalfClosed, serve};
use crate::places::{Place, Purpose};
use crate::refusal::{Answer, Refusal, accepted, plain, unanswered};
use crate::request_body::{read_body, refuse_body, refuse_head, unpack};
use crate::server::{Server, Stopped};
use crate::stream::Socket;

/// The name of the server in the log.
const NAME: &str = "http listen";

/// What all connections share.
struct Shared {
    rules: Rules,
    intake: Arc<Intake>,
    desk: Arc<Desk>,
}

/// Starts the server of a source.
pub(super) fn start(
    bound: Bound,
    rules: Rules,
    intake: Arc<Intake>,
    desk: Arc<Desk>,
) -> Result<Server, Cause> {
    let limits = rules.server.limits();
    let syncing = Arc::clone(&intake);
    let background = async move {
        if let Store::Recorded(recorded) = &syncing.store {
            Arc::clone(recorded).keep_synced().await;
        }
    };
    let shared = Arc::new(Shared {
        rules,
        intake,
        desk,
    });
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
    let reading = match look(shared, place, request) {
        Ok(Look::Answered(answer)) => return answer,
        Ok(Look::Reads(reading)) => reading,
        Err(refusal) => return refuse_head(refusal, &request.headers, body).await,
    };
    match receive(shared, place, request, reading, body).await {
        Ok(answer) => answer,
        Err(refusal) => refuse_body(refusal, body).await,
    }
}

/// What follows from the head of a request.
enum Look<'a> {
    /// It has no body that counts, and is answered.
    Answered(Answer),
    Reads(Reading<'a>),
}

/// Looks at the head of a request.
fn look<'a>(shared: &'a Shared, place: &Place, request: &Parts) -> Result<Look<'a>, Refusal> {
    let rules = &shared.rules;
    if let Some(answer) = rules.server.check_page(request, &rules.allowed())? {
        return Ok(Look::Answered(answer));
    }
    if is_health(rules, request)? {
        shared.intake.check_open()?;
        return Ok(Look::Answered(plain("ok\n".to_owned())));
    }
    let path = path_of(rules, request);
    if let (Some(signature), Ok(_)) = (&rules.signature, &path)
        && let Some(challenge) = signature.challenge(request)
    {
        return challenge.map(plain).map(Look::Answered);
    }
    check(rules, path, place, request).map(Look::Reads)
}

/// Reads the body, and accepts its items if its signature is right.
async fn receive(
    shared: &Shared,
    place: &Place,
    request: &Parts,
    reading: Reading<'_>,
    body: &mut Incoming,
) -> Result<Answer, Refusal> {
    let rules = &shared.rules;
    let intake = &shared.intake;
    let mut reserved = intake.budget.reserve();
    let limit = rules.server.timeout;
    let mut bytes = read_body(body, rules.body_bytes_max, limit, &mut reserved).await?;
    if let Some(signature) = &rules.signature {
        // That of what was sent: nothing of others is unpacked.
        let verified = signature.verify(&request.headers, &bytes, wall_ns() / 1_000_000_000);
        verified.inspect_err(|refusal| intake.count_unsigned(&refusal.line))?;
        place.confirm(Purpose::Client)?;
    }
    if reading.gzip {
        bytes = unpack(&bytes, rules.body_bytes_max, &mut reserved)?;
    }
    let challenge = rules.signature.as_ref();
    if let Some(challenge) = challenge.and_then(|signature| signature.signed_challenge(&bytes)) {
        return Ok(plain(challenge));
    }
    let check = rules.check_item.as_ref();
    let mut waiting = None;
    let items = match rules.item {
        Item::Body => items(rules.body, reading.lines, &bytes, check),
        Item::Request => {
            let id = intake.next_id();
            waiting = rules.reply.map(|limit| (shared.desk.wait(&id), limit));
            let known = (id.as_str(), reading.path.as_str());
            Items::of_request(rules.body, request, known, &bytes, check)
        }
    };
    let items = items.map_err(|line| Refusal::new(StatusCode::BAD_REQUEST, line))?;
    drop((reserved, bytes));
    let count = items.count;
    intake.accept(items).await?;
    let Some((waiting, limit)) = waiting else {
        return Ok(accepted(count));
    };
    let reply = waiting.reply(limit).await;
    // An item that is no reply is refused by the sink.
    let answer = reply.and_then(|reply| reply.answer().ok());
    Ok(answer.unwrap_or_else(|| unanswered(count)))
}
