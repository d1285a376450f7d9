//! What a reader with the token may ask the server of the queues for: it does it as for a client with all rights.

use std::time::Duration;

use millstream_http::pages::{Page, PageRequest, PendingPage};
use millstream_journal::chain;
use millstream_queue::QueueError;
use millstream_queue::server::ServerError;
use millstream_queue::server::watch::ServerWatch;
use serde_json::json;

use crate::sections::json;

/// Moves items from one queue to another: `from`, `to`, and at most `max` of them.
pub(super) const REDRIVE: &str = "redrive";
/// Reads the configuration, credentials and certificates again.
pub(super) const RELOAD: &str = "reload";
/// The time after which a reader gets the answer that there is none.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Asks for a redrive.
pub(super) fn redrive(watch: &ServerWatch, request: &PageRequest<'_>) -> PendingPage {
    let (Some(from), Some(to)) = (request.parameter("from"), request.parameter("to")) else {
        return Page::invalid("a redrive needs two queues: ?from=QUEUE&to=QUEUE").ready();
    };
    let items_max = match request.parameter("max") {
        None => u64::MAX,
        Some(max) => match max.parse() {
            Ok(max) if max > 0 => max,
            _ => {
                let line = format!(
                    "queue \"{from}\": max must be a number from 1, not \"{}\"",
                    max.escape_debug()
                );
                return Page::invalid(&line).ready();
            }
        },
    };
    let moved = watch.redrive(&from, &to, items_max);
    let late = format!("queue \"{from}\": the server of the queues does not answer");
    Box::pin(answer(
        moved,
        late,
        move |moved| json!({"asked": REDRIVE, "from": from, "to": to, "moved": moved}),
    ))
}

/// Asks for a reload.
pub(super) fn reload(watch: &ServerWatch) -> PendingPage {
    let late = "the server of the queues does not answer".to_owned();
    let fixed = watch.reload();
    Box::pin(answer(
        fixed,
        late,
        |fixed| json!({"asked": RELOAD, "at_next_start": fixed}),
    ))
}

/// The answer of the server as a page; `late` is the line where it takes too long.
async fn answer<T>(
    outcome: impl Future<Output = Result<T, ServerError>> + Send,
    late: String,
    shown: impl FnOnce(T) -> serde_json::Value + Send,
) -> Page {
    match tokio::time::timeout(TIMEOUT, outcome).await {
        Ok(Ok(outcome)) => json(&shown(outcome)),
        Ok(Err(error)) => refused(&error),
        Err(_) => Page::unavailable(&late),
    }
}

fn refused(error: &ServerError) -> Page {
    let line = chain(error).to_string();
    match error {
        ServerError::Broker(QueueError::Name { .. } | QueueError::Itself(_)) => {
            Page::invalid(&line)
        }
        ServerError::Broker(QueueError::Missing(_)) => Page::missing(&line),
        ServerError::NotRunning | ServerError::Busy => Page::unavailable(&line),
        _ => Page::conflict(&line),
    }
}
