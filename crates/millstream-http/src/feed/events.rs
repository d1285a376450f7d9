//! Server-sent events: the body of an answer that does not end with the request.
//!
//! The format is that of <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::clients::Client;
use super::item::Item;

/// A comment, which browsers ignore. The first one says that the feed has begun, the others that it is alive.
const COMMENT: &[u8] = b": millstream\n\n";

/// The events for one client.
pub(crate) struct Events {
    client: Client,
    /// What is sent before all items.
    begin: Option<Bytes>,
    /// A further comment is due.
    alive: Interval,
}

impl Events {
    /// `id` is where the client resumes if it receives no item: an event without data.
    pub(super) fn new(client: Client, id: Option<String>, every: Duration) -> Self {
        let mut alive = interval_at(Instant::now() + every, every);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begin = match id {
            Some(id) => [COMMENT, b"id: ", id.as_bytes(), b"\n\n"].concat().into(),
            None => Bytes::from_static(COMMENT),
        };
        Events {
            client,
            begin: Some(begin),
            alive,
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(begin) = self.begin.take() {
            return Poll::Ready(Some(Ok(Frame::data(begin))));
        }
        if self.alive.poll_tick(cx).is_ready() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
        }
        let Some(items) = ready!(self.client.poll_take(cx)) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(Ok(Frame::data(events(&items).into()))))
    }
}

/// The text of an event for each item. A line end in an item begins a further line of the event.
fn events(items: &[Item]) -> Vec<u8> {
    let mut text = Vec::with_capacity(items.iter().map(Item::bytes).sum());
    for item in items {
        if !item.id.is_empty() {
            text.extend_from_slice(b"id: ");
            text.extend_from_slice(item.id.as_bytes());
            text.push(b'\n');
        }
        for line in item.text.replace("\r\n", "\n").split(['\n', '\r']) {
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
    use tokio_tungstenite::tungstenite::Utf8Bytes;

    use super::*;

    #[test]
    fn an_item_of_several_lines_is_one_event() {
        let text = |text| Item::from(Utf8Bytes::from_static(text));
        let items = [text("one"), text("a\nb\r\nc\rd\n"), text("")];
        let expected = "data: one\n\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\ndata: \n\n";
        assert_eq!(String::from_utf8(events(&items)), Ok(expected.to_owned()));
    }

    #[test]
    fn an_item_of_a_history_has_its_id() {
        let text = Utf8Bytes::from_static("a\nb");
        let id = "4f-7".into();
        let event = String::from_utf8(events(&[Item {
            text,
            id,
            number: 7,
        }]))
        .unwrap();
        assert_eq!(event, "id: 4f-7\ndata: a\ndata: b\n\n");
    }
}
