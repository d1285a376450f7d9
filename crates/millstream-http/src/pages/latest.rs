//! The body of an answer that is the newest of some values, again and again.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::watch;

/// The receiver with its next value; `None` when there will be no more.
type Next = Pin<Box<dyn Future<Output = Option<(watch::Receiver<Bytes>, Bytes)>> + Send>>;

/// The newest values for one client, which has at most one of them in memory.
pub struct Latest(Next);

impl Latest {
    pub(super) fn new(mut newest: watch::Receiver<Bytes>) -> Self {
        // The value that is there comes at once.
        newest.mark_changed();
        Latest(Box::pin(next(newest)))
    }
}

async fn next(mut newest: watch::Receiver<Bytes>) -> Option<(watch::Receiver<Bytes>, Bytes)> {
    loop {
        newest.changed().await.ok()?;
        let value = newest.borrow_and_update().clone();
        if !value.is_empty() {
            return Some((newest, value));
        }
    }
}

impl Body for Latest {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some((newest, value)) = ready!(self.0.as_mut().poll(cx)) else {
            return Poll::Ready(None);
        };
        self.0 = Box::pin(next(newest));
        Poll::Ready(Some(Ok(Frame::data(value))))
    }
}
