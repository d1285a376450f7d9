//! The server: one thread, a task for each connection.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::Result;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::EXPECT;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use millstream_flow::error::Cause;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::body::items;
use super::check::{check, too_large};
use super::intake::{Intake, Store};
use super::refusal::{Answer, Refusal, accepted};
use super::rules::Rules;
use super::stream::{Socket, Stream};
use crate::address::{Bound, SocketFile};

/// The time in which requests that have begun are answered after a stop.
const GRACE: Duration = Duration::from_secs(3);
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The largest header of a request: request line and all fields.
const HEADER_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;
/// What is read of a body that is refused, so that the client reads the answer.
const DISCARDED_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// A server at work.
pub(super) struct Server {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// A listening socket of the runtime.
enum Listener {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file")] SocketFile,
    ),
}

impl Listener {
    fn new(bound: Bound) -> Result<Self> {
        Ok(match bound {
            Bound::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Bound::Unix(listener, file) => Listener::Unix(UnixListener::from_std(listener)?, file),
        })
    }

    async fn accept(&self) -> Result<Socket> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Only latency depends on it.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            Listener::Unix(listener, _) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

/// What all connections share.
struct Shared {
    rules: Rules,
    intake: Arc<Intake>,
}

impl Server {
    /// Starts the thread.
    pub(super) fn start(
        bound: Bound,
        rules: Rules,
        intake: Arc<Intake>,
    ) -> core::result::Result<Self, Cause> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            Listener::new(bound)?
        };
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared { rules, intake });
        let thread = std::thread::Builder::new()
            .name("http listen".to_owned())
            .spawn(move || {
                runtime.block_on(serve(listener, shared, stopped));
                // A sync that hangs is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Server {
            stop,
            thread: Some(thread),
        })
    }

    /// Accepts no more connections, answers the requests that have begun, and ends the thread.
    pub(super) fn stop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the output of `work`, or `None` if `stop` is ready first.
async fn until<T>(work: impl Future<Output = T>, stop: impl Future) -> Option<T> {
    let (mut work, mut stop) = (pin!(work), pin!(stop));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => stop.as_mut().poll(cx).map(|_| None),
    })
    .await
}

/// Returns when the server is stopped.
async fn wait_stopped(mut stopped: watch::Receiver<bool>) {
    // An error says that the sender is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn serve(listener: Listener, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    let syncing = match &shared.intake.store {
        Store::Recorded(recorded) => Some(tokio::spawn(Arc::clone(recorded).keep_synced())),
        Store::Waiting(_) => None,
    };
    let slots = Arc::new(Semaphore::new(shared.rules.connections_max));
    let mut connections = JoinSet::new();
    let accept = async || {
        let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
        Some((listener.accept().await, slot))
    };
    while let Some(Some((socket, slot))) = until(accept(), wait_stopped(stopped.clone())).await {
        while connections.try_join_next().is_some() {}
        match socket {
            Ok(socket) => {
                let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
                connections.spawn(async move {
                    connection(socket, shared, stopped).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // For instance too many open files: existing connections are not affected.
                tracing::warn!("http listen: cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // What has not sent its request by then is disconnected.
    let _ = timeout(GRACE, drained).await;
    connections.abort_all();
    if let Some(syncing) = syncing {
        syncing.abort();
    }
}

async fn connection(socket: Socket, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
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
                let _ = timeout(DISCARD_TIME, discard(&mut body)).await;
            }
            refusal.answer()
        }
    }
}

/// Reads the body and accepts its items. Returns their number.
async fn receive(
    shared: &Shared,
    lines: bool,
    body: &mut Incoming,
) -> core::result::Result<usize, Refusal> {
    let (rules, intake) = (&shared.rules, &shared.intake);
    let mut reserved = intake.reserve();
    let mut bytes = Vec::new();
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let line = format!("the body cannot be read: {error}");
                Refusal::new(StatusCode::BAD_REQUEST, line)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > rules.body_bytes_max {
                return Err(too_large(rules.body_bytes_max));
            }
            reserved.grow(data.len() as u64)?;
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    timeout(rules.timeout, read).await.map_err(|_| {
        let line = "the body did not arrive in time";
        Refusal::new(StatusCode::REQUEST_TIMEOUT, line)
    })??;
    let items = items(rules.body, lines, &bytes);
    let items = items.map_err(|line| Refusal::new(StatusCode::BAD_REQUEST, line))?;
    drop((reserved, bytes));
    let count = items.count;
    intake.accept(items).await?;
    Ok(count)
}

/// Reads what is left of a body: a client that is still writing would not see the answer.
async fn discard(body: &mut Incoming) {
    let mut left = DISCARDED_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, |data| data.len());
        if read >= left {
            return;
        }
        left -= read;
    }
}
