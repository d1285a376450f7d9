//! The flow of Market Spread, with the number of each message in its stream.
//!
//! ```text
//! quotes (tcp) --+
//!                +--> by symbol --> spread --> rejected --> results (tcp)
//! orders (tcp) --+
//! ```

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_flow::framing::Frames;
use millstream_flow::source::Source;
use millstream_flow::tcp::TcpSink;
use millstream_flow::{Flow, KeyedStream, OnError, codec};

use super::example::market::{Event, Market};
use super::example::messages::{Order, OrderResult, Quote, Symbol};

/// A message that the state of its symbol has handled.
#[derive(Clone, Debug)]
pub(super) struct Handled {
    /// True for an order.
    pub(super) order: bool,
    /// The number of the message in its stream, from 0.
    pub(super) sequence: u64,
    /// The result to send, for a rejected order.
    pub(super) result: Option<OrderResult>,
}

/// A decoder that numbers what it decodes. A poison message has no number.
fn numbered<T>(
    decode: impl Fn(&[u8]) -> Result<T, String> + Send + Sync + 'static,
) -> impl Fn(&[u8]) -> Result<(u64, T), String> + Send + Sync + 'static {
    let seen = AtomicU64::new(0);
    move |frame| {
        let message = decode(frame)?;
        Ok((seen.fetch_add(1, Ordering::Relaxed), message))
    }
}

/// Both inputs, keyed by symbol, followed by the state of each symbol. A poison message is counted and skipped.
pub(super) fn spread(
    flow: &Flow,
    quotes: impl Source<Frames>,
    orders: impl Source<Frames>,
) -> KeyedStream<Symbol, Handled> {
    let quotes = codec::decode(quotes, numbered(Quote::decode)).on_error(OnError::Skip);
    let orders = codec::decode(orders, numbered(Order::decode)).on_error(OnError::Skip);
    let quotes = flow
        .source("quotes", quotes)
        .key_by(|(_, quote)| quote.symbol)
        .named("quote symbol")
        .map(|(sequence, quote)| (sequence, Event::Quote(quote)));
    let orders = flow
        .source("orders", orders)
        .key_by(|(_, order)| order.symbol)
        .named("order symbol")
        .map(|(sequence, order)| (sequence, Event::Order(order)));
    quotes.merge(&[orders]).stateful(
        "spread",
        |_| Market::default(),
        |market, _, (sequence, event)| {
            let order = matches!(event, Event::Order(_));
            let result = market.handle(event);
            Some(Handled {
                order,
                sequence,
                result,
            })
        },
    )
}

/// Sends the rejected orders to `sink`.
pub(super) fn reject(handled: &KeyedStream<Symbol, Handled>, sink: TcpSink) {
    let encode = |result: &OrderResult, out: &mut Vec<u8>| out.extend_from_slice(&result.encode());
    handled
        .filter_map(|handled| handled.result)
        .named("rejected")
        .values()
        .sink("results", codec::encode(sink, encode));
}
