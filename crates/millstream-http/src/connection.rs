//! A connection of HTTP/1.1: the limits of its requests, and its end when the server is stopped.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::server::{Stopped, until, wait_stopped};
use crate::stream::{Socket, Stream};

/// The largest header of a request: request line and all fields.
const HEADER_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// What a client that sends no more may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfClosed {
    /// The answers to its requests.
    Answered,
    /// Nothing: a client of a feed that has closed the connection is noticed at once.
    Gone,
}

/// Answers the requests of a connection until the client closes it, is too slow, or the server is stopped: then the request that has begun
/// is answered. `server` is the name in the log.
pub(crate) async fn serve<F, B>(
    server: &str,
    socket: Socket,
    timeout: Duration,
    half_closed: HalfClosed,
    answer: impl Fn(Request<Incoming>) -> F,
    stopped: Stopped,
) where
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stream = TokioIo::new(Stream::new(socket, timeout));
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .half_close(half_closed == HalfClosed::Answered)
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
        tracing::debug!("{server}: a connection ended: {error}");
    }
}
