//! A connection of a client.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, ORIGIN,
    SEC_WEBSOCKET_ACCEPT, UPGRADE, VARY,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::check::{Protocol, Rules};
use super::clients::{Client, Clients};
use super::events::Events;
use super::queue::Queue;
use super::socket;
use crate::lock;
use crate::server::{HEADER_BYTES_MAX, HEADERS_MAX, Stopped, until, wait_stopped};
use crate::stream::{Socket, Stream};

/// An answer, or a feed of events.
pub(crate) type Answer = Response<Either<Full<Bytes>, Events>>;

/// What the requests of one connection leave.
#[derive(Default)]
pub(crate) struct Connection {
    /// The queue of the client, once it has one.
    queue: Mutex<Option<Arc<Queue>>>,
    /// The client that becomes a WebSocket.
    upgrade: Mutex<Option<(OnUpgrade, Client)>>,
}

/// Answers the requests of a server whose clients may become feeds.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The time in which a client sends a header, or reads.
    fn timeout(&self) -> Duration;

    /// Answers a request.
    fn answer(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> impl Future<Output = Answer> + Send;
}

/// The requests of a server that is one feed.
pub(super) struct OneFeed {
    pub(super) rules: Rules,
    pub(super) clients: Arc<Clients>,
}

impl Handler for OneFeed {
    fn timeout(&self) -> Duration {
        self.rules.timeout
    }
    async fn answer(&self, connection: &Connection, request: Request<Incoming>) -> Answer {
        feed(&self.rules, &self.clients, connection, request)
    }
}

/// Serves a connection until it ends, or its client does not keep up.
pub(crate) async fn connection(socket: Socket, handler: Arc<impl Handler>, stopped: Stopped) {
    let connection = Connection::default();
    let overflow = poll_fn(|cx| match &*lock(&connection.queue) {
        Some(queue) => queue.poll_overflow(cx),
        // It is polled again when a request was answered: that is the same task.
        None => std::task::Poll::Pending,
    });
    // Leaving it here closes the socket, whatever is being written.
    until(serve(socket, &*handler, &connection, stopped), overflow).await;
}

async fn serve(socket: Socket, handler: &impl Handler, connection: &Connection, stopped: Stopped) {
    let timeout = handler.timeout();
    let stream = TokioIo::new(Stream::new(socket, timeout));
    let service = service_fn(|request| async move {
        Ok::<_, Infallible>(handler.answer(connection, request).await)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(stream, service)
        .with_upgrades();
    let mut served = pin!(served);
    let outcome = match until(served.as_mut(), wait_stopped(stopped)).await {
        Some(outcome) => outcome,
        None => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!("http feed: a connection ended: {error}");
    }
    let upgrade = lock(&connection.upgrade).take();
    if let Some((upgrade, client)) = upgrade {
        match upgrade.await {
            Ok(upgraded) => socket::serve(upgraded, &client, timeout / 2).await,
            Err(error) => tracing::debug!("http feed: a connection ended: {error}"),
        }
    }
}

/// Answers a request for a feed.
pub(crate) fn feed(
    rules: &Rules,
    clients: &Arc<Clients>,
    connection: &Connection,
    mut request: Request<Incoming>,
) -> Answer {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, _) = request.into_parts();
    let protocol = match rules.protocol(&parts) {
        Ok(protocol) => protocol,
        Err(refusal) => return refusal.answer().map(Either::Left),
    };
    // From here on the client misses no item.
    let client = clients.join();
    *lock(&connection.queue) = Some(Arc::clone(&client.queue));
    match protocol {
        Protocol::Events => events(&parts.headers, Events::new(client, rules.timeout / 2)),
        Protocol::WebSocket { accept } => {
            *lock(&connection.upgrade) = Some((upgrade, client));
            switch(&accept)
        }
    }
}

fn events(request: &HeaderMap, events: Events) -> Answer {
    let mut answer = Response::new(Either::Right(events));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = request.get(ORIGIN) {
        // The origin is accepted; the browser lets the page read the answer.
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
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
