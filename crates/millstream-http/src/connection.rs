//! A connection of HTTP/1.1: the limits of its requests, and its end when the server is stopped.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

use crate::places::Place;
use crate::server::{Stopped, until, wait_stopped};
use crate::stream::{Socket, Stream};

/// The largest header of a request: request line and all fields.
const HEADER_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// A request that is being answered, until this is dropped.
struct Answering(Arc<Place>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set_idle(true);
    }
}

/// The body of an answer, until all of it is written.
struct Tracked<B> {
    body: B,
    _answering: Answering,
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What a client that sends no more may expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfClosed {
    /// The answers to its requests.
    Answered,
    /// Nothing: a client of a feed that has closed the connection is noticed at once.
    Gone,
}

/// Answers the requests of a connection until the client closes it, is too slow, or the server is stopped: then the
/// request that has begun is answered. `server` is the name in the log.
pub(crate) async fn serve<F, B>(
    server: &str,
    (socket, place): (Socket, &Arc<Place>),
    timeout: Duration,
    half_closed: HalfClosed,
    answer: impl Fn(Request<Incoming>) -> F,
    stopped: Stopped,
) where
    F: Future<Output = Response<B>>,
    B: Body + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stream = TokioIo::new(Stream::new(socket, timeout));
    let service = service_fn(|request| {
        place.set_idle(false);
        let answering = Answering(Arc::clone(place));
        let answer = answer(request);
        async move {
            let body = |body| Tracked {
                body,
                _answering: answering,
            };
            Ok::<_, Infallible>(answer.await.map(body))
        }
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
