//! The feed over a WebSocket.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::clients::Client;
use super::item::Item;
use crate::server::until;

/// The largest message of a client. A feed ignores messages.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// After so many pings without a word the client is gone.
const UNANSWERED_MAX: usize = 2;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What to send next.
enum Next {
    Items(Vec<Item>),
    Ping,
    End,
}

/// Sends items until they end, the client leaves, or it does not answer.
pub(super) async fn serve(upgraded: Upgraded, client: &mut Client, ping_every: Duration) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (mut sink, mut stream) = socket.split();
    let heard = AtomicBool::new(true);
    let sent = until(
        send(&mut sink, client, ping_every, &heard),
        receive(&mut stream, &heard),
    )
    .await;
    if matches!(sent, Some(Ok(true))) {
        // The client answers, and closes.
        receive(&mut stream, &heard).await;
    }
}

/// Sends items. Returns true after the end of the items.
async fn send(
    sink: &mut SplitSink<Socket, Message>,
    client: &mut Client,
    ping_every: Duration,
    heard: &AtomicBool,
) -> Result<bool, Error> {
    let mut ping = interval_at(Instant::now() + ping_every, ping_every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut unanswered = 0;
    loop {
        match next(client, &mut ping).await {
            Next::Items(items) => {
                for item in items {
                    sink.feed(Message::Text(item.text)).await?;
                }
                sink.flush().await?;
            }
            Next::Ping => {
                unanswered = if heard.swap(false, Ordering::Relaxed) {
                    0
                } else {
                    unanswered + 1
                };
                if unanswered >= UNANSWERED_MAX {
                    return Ok(false);
                }
                sink.send(Message::Ping(Bytes::new())).await?;
            }
            Next::End => {
                let close = CloseFrame {
                    code: CloseCode::Away,
                    reason: "the feed ends".into(),
                };
                sink.send(Message::Close(Some(close))).await?;
                return Ok(true);
            }
        }
    }
}

async fn next(client: &mut Client, ping: &mut Interval) -> Next {
    poll_fn(|cx| {
        if ping.poll_tick(cx).is_ready() {
            return Poll::Ready(Next::Ping);
        }
        client.poll_take(cx).map(|items| match items {
            Some(items) => Next::Items(items),
            None => Next::End,
        })
    })
    .await
}

/// Reads until the client closes or the connection fails. Pings are answered, other messages are ignored.
async fn receive(stream: &mut SplitStream<Socket>, heard: &AtomicBool) {
    while let Some(Ok(_)) = stream.next().await {
        heard.store(true, Ordering::Relaxed);
    }
}
