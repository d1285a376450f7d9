//! The connections of a source.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use millstream_flow::error::Cause;

use super::body::items;
use super::check::check;
use super::intake::{Intake, Store};
use super::rules::Rules;
use crate::address::Bound;
use crate::refusal::{Answer, Refusal, accepted};
use crate::request_body::{discard_body, read_body};
use crate::server::{HEADER_BYTES_MAX, HEADERS_MAX, Server, Stopped, until, wait_stopped};
use crate::stream::{Socket, Stream};

/// What all connections share.
struct Shared {
    rules: Rules,
    intake: Arc<Intake>,
}

/// Starts the server of a source.
pub(super) fn start(bound: Bound, rules: Rules, intake: Arc<Intake>) -> Result<Server, Cause> {
    let connections_max = rules.connections_max;
    let syncing = Arc::clone(&intake);
    let background = async move {
        if let Store::Recorded(recorded) = &syncing.store {
            Arc::clone(recorded).keep_synced().await;
        }
    };
    let shared = Arc::new(Shared { rules, intake });
    Server::start(
        "http listen",
        bound,
        connections_max,
        background,
        move |socket, stopped| connection(socket, Arc::clone(&shared), stopped),
    )
}

async fn connection(socket: Socket, shared: Arc<Shared>, stopped: Stopped) {
    let limit = shared.rules.timeout;
    let stream = TokioIo::new(Stream::new(socket, limit));
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limit)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(true)
        .serve_connection(stream, service);
    let mut served = pin!(served);
    let outcome = match until(served.as_mut(), wait_stopped(stopped)).await {
        Some(outcome) => outcome,
        None => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!("http listen: a connection ended: {error}");
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Answer {
    let (parts, mut body) = request.into_parts();
    let outcome = match check(&shared.rules, &parts) {
        Ok(lines) => receive(shared, lines, &mut body).await,
        // The client asks before it sends the body.
        Err(refusal) if parts.headers.contains_key(EXPECT) => return refusal.answer(),
        Err(refusal) => Err(refusal),
    };
    match outcome {
        Ok(items) => accepted(items),
        Err(refusal) => {
            if refusal.status != StatusCode::REQUEST_TIMEOUT {
                discard_body(&mut body).await;
            }
            refusal.answer()
        }
    }
}

/// Reads the body and accepts its items. Returns their number.
async fn receive(shared: &Shared, lines: bool, body: &mut Incoming) -> Result<usize, Refusal> {
    let (rules, intake) = (&shared.rules, &shared.intake);
    let mut reserved = intake.budget.reserve();
    let bytes = read_body(body, rules.body_bytes_max, rules.timeout, &mut reserved).await?;
    let items = items(rules.body, lines, &bytes);
    let items = items.map_err(|line| Refusal::new(StatusCode::BAD_REQUEST, line))?;
    drop((reserved, bytes));
    let count = items.count;
    intake.accept(items).await?;
    Ok(count)
}
