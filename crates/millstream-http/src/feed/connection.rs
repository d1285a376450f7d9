//! A connection of a client.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE, VARY,
};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};

use super::check::{Protocol, protocol};
use super::clients::{Client, Clients};
use super::events::Events;
use super::queue::Queue;
use super::socket;
use crate::connection::{HalfClosed, serve};
use crate::lock;
use crate::places::Place;
use crate::refusal::Refusal;
use crate::server::{Stopped, until};
use crate::stream::Socket;
use crate::url;

/// The header of a client of events that connects again.
const LAST_EVENT_ID: &str = "last-event-id";
/// The parameter of a query with the same meaning, for a WebSocket.
const AFTER: &str = "after";

/// An answer, or a feed of events.
pub(crate) type Answer = Response<Either<Full<Bytes>, Events>>;

/// What the requests of one connection leave.
pub(crate) struct Connection {
    pub(crate) place: Arc<Place>,
    /// The queue of the client, once it has one.
    queue: Mutex<Option<Arc<Queue>>>,
    /// The client that becomes a WebSocket.
    upgrade: Mutex<Option<(OnUpgrade, Client)>>,
}

/// Answers the requests of a server whose clients may become feeds.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The name of the server in the log.
    const NAME: &'static str;

    /// The time in which a client sends a header, or reads.
    fn timeout(&self) -> Duration;

    /// Answers a request.
    fn answer(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> impl Future<Output = Answer> + Send;
}

/// Serves a connection until it ends, or its client does not keep up.
pub(crate) async fn connection<H: Handler>(
    socket: Socket,
    place: Arc<Place>,
    handler: Arc<H>,
    stopped: Stopped,
) {
    let connection = Connection {
        place,
        queue: Mutex::default(),
        upgrade: Mutex::default(),
    };
    let overflow = poll_fn(|cx| match &*lock(&connection.queue) {
        Some(queue) => queue.poll_overflow(cx),
        // It is polled again when a request was answered: that is the same task.
        None => Poll::Pending,
    });
    // Leaving it here closes the socket, whatever is being written.
    until(requests(socket, &*handler, &connection, stopped), overflow).await;
}

async fn requests<H: Handler>(
    socket: Socket,
    handler: &H,
    connection: &Connection,
    stopped: Stopped,
) {
    let timeout = handler.timeout();
    let answer = |request| handler.answer(connection, request);
    let client = (socket, &connection.place);
    serve(H::NAME, client, timeout, HalfClosed::Gone, answer, stopped).await;
    let upgrade = lock(&connection.upgrade).take();
    if let Some((upgrade, mut client)) = upgrade {
        connection.place.set_idle(false);
        match upgrade.await {
            Ok(upgraded) => socket::serve(upgraded, &mut client, timeout / 2).await,
            Err(error) => tracing::debug!("{}: a connection ended: {error}", H::NAME),
        }
    }
}

/// Answers a request for a feed, whose origin, token and path were checked. Clients are pinged after half of `timeout`.
pub(crate) fn feed(
    timeout: Duration,
    clients: &Arc<Clients>,
    connection: &Connection,
    request: &mut Parts,
) -> Result<Answer, Refusal> {
    let protocol = protocol(request)?;
    let after = if clients.has_history() {
        after(request)?
    } else {
        None
    };
    // From here on the client misses no item.
    let (client, begin) = clients.join(after.as_deref())?;
    *lock(&connection.queue) = Some(Arc::clone(&client.queue));
    Ok(match protocol {
        Protocol::Events => events(Events::new(client, begin, timeout / 2)),
        Protocol::WebSocket { accept, upgrade } => {
            *lock(&connection.upgrade) = Some((upgrade, client));
            switch(&accept)
        }
    })
}

/// The id of the last item that a client has. A browser that connects again sends it in a header, and the query of the
/// first time.
fn after(request: &Parts) -> Result<Option<String>, Refusal> {
    match request.headers.get(LAST_EVENT_ID) {
        Some(id) => Ok(Some(String::from_utf8_lossy(id.as_bytes()).into_owned())),
        None => {
            let query = request.uri.query().unwrap_or_default();
            Ok(url::parameter(query, AFTER)?.map(|id| id.into_owned()))
        }
    }
}

fn events(events: Events) -> Answer {
    let mut answer = Response::new(Either::Right(events));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
    answer
}

/// The answer to the handshake of a WebSocket.
fn switch(accept: &str) -> Answer {
    let mut answer = Response::new(Either::Left(Full::default()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    answer
}
