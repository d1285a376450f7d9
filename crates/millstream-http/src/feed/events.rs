//! Server-sent events: the body of an answer that does not end with the request.
//!
//! The format is that of <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::clients::Client;

/// A comment, which browsers ignore. The first one says that the feed has begun, the others that it is alive.
const COMMENT: &[u8] = b": millstream\n\n";

/// The events for one client.
pub(crate) struct Events {
    client: Client,
    /// A comment is due; the first at once.
    alive: Interval,
}

impl Events {
    pub(super) fn new(client: Client, every: Duration) -> Self {
        let mut alive = interval(every);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Events { client, alive }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
        }
        let Some(items) = ready!(self.client.queue.poll_take(cx)) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(Frame::data(events(&items).into()))))
    }
}

/// The text of an event for each item. A line end in an item begins a further line of the event.
fn events(items: &[Utf8Bytes]) -> Vec<u8> {
    let mut text = Vec::with_capacity(items.iter().map(|item| item.len() + 8).sum());
    for item in items {
        for line in item.replace("\r\n", "\n").split(['\n', '\r']) {
            text.extend_from_slice(b"data: ");
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_several_lines_is_one_event() {
        let items = ["one".into(), "a\nb\r\nc\rd\n".into(), "".into()];
        let expected = "data: one\n\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\ndata: \n\n";
        assert_eq!(String::from_utf8(events(&items)), Ok(expected.to_owned()));
    }
}
