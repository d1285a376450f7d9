//! The flow of Market Spread: two streams into one state for each symbol.
//!
//! ```text
//! quotes (tcp) --+
//!                +--> by symbol --> spread --> rejected --> results (tcp)
//! orders (tcp) --+
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_flow::framing::Frames;
use millstream_flow::sink::Sink;
use millstream_flow::source::Source;
use millstream_flow::tcp::TcpSink;
use millstream_flow::{Flow, KeyedStream, OnError, codec};
use serde::{Deserialize, Serialize};

use super::messages::{Order, OrderResult, Quote, Symbol};

/// A message of either stream.
#[derive(Clone, Debug)]
pub enum Event {
    /// From the stream of quotes.
    Quote(Quote),
    /// From the stream of orders.
    Order(Order),
}

/// A message that the state of its symbol has handled.
#[derive(Clone, Debug)]
pub struct Handled {
    /// True for an order.
    pub order: bool,
    /// The number of the message in its stream, from 0.
    pub sequence: u64,
    /// The result to send, for a rejected order.
    pub result: Option<OrderResult>,
}

/// What is known of a symbol. One that was never quoted rejects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Market {
    bid: f64,
    offer: f64,
    reject: bool,
}

impl Default for Market {
    fn default() -> Self {
        Market {
            bid: 0.0,
            offer: 0.0,
            reject: true,
        }
    }
}

impl Market {
    /// Takes a quote in; a spread of 5 cents or 5% rejects orders from now on.
    pub fn quote(&mut self, quote: &Quote) {
        let spread = quote.offer - quote.bid;
        let mid = (quote.bid + quote.offer) / 2.0;
        self.reject = spread >= 0.05 || spread / mid >= 0.05;
        (self.bid, self.offer) = (quote.bid, quote.offer);
    }

    /// The result that an order gives, if it is rejected.
    #[must_use]
    pub fn order(&self, order: &Order) -> Option<OrderResult> {
        self.reject.then(|| OrderResult {
            side: order.side,
            account: order.account,
            id: order.id,
            symbol: order.symbol,
            quantity: order.quantity,
            price: order.price,
            last_bid: self.bid,
            last_offer: self.offer,
            timestamp: timestamp(),
        })
    }
}

/// Units of 10 us since the epoch.
fn timestamp() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a result carries the wall time, as published"
    )]
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (now.as_nanos() / 10_000) as u64
}

/// Where the streams come from, what becomes of poison messages, and how many have come.
pub struct Inputs {
    /// The stream of quotes.
    pub quotes: Box<dyn Source<Frames>>,
    /// The stream of orders.
    pub orders: Box<dyn Source<Frames>>,
    /// For messages that are none.
    pub on_error: OnError,
    /// Quotes so far.
    pub quotes_seen: Arc<AtomicU64>,
    /// Orders so far.
    pub orders_seen: Arc<AtomicU64>,
}

impl Inputs {
    /// Both streams; a poison message is counted and skipped.
    #[must_use]
    pub fn new(quotes: impl Source<Frames>, orders: impl Source<Frames>) -> Self {
        let (quotes_seen, orders_seen) = (Arc::default(), Arc::default());
        Inputs {
            quotes: Box::new(quotes),
            orders: Box::new(orders),
            on_error: OnError::Skip,
            quotes_seen,
            orders_seen,
        }
    }
}

/// Both inputs, keyed by symbol, followed by the state of each symbol.
#[must_use]
pub fn spread(flow: &Flow, inputs: Inputs) -> KeyedStream<Symbol, Handled> {
    let Inputs {
        quotes,
        orders,
        on_error,
        quotes_seen,
        orders_seen,
    } = inputs;
    let decode_quote = move |frame: &[u8]| {
        let quote = Quote::decode(frame)?;
        Ok::<_, super::messages::DecodeError>((quotes_seen.fetch_add(1, Ordering::Relaxed), quote))
    };
    let decode_order = move |frame: &[u8]| {
        let order = Order::decode(frame)?;
        Ok::<_, super::messages::DecodeError>((orders_seen.fetch_add(1, Ordering::Relaxed), order))
    };
    let quotes = flow
        .source(
            "quotes",
            codec::decode(quotes, decode_quote).on_error(on_error.clone()),
        )
        .key_by(|(_, quote)| quote.symbol)
        .named("quote symbol")
        .map(|(sequence, quote)| (sequence, Event::Quote(quote)));
    let orders = flow
        .source(
            "orders",
            codec::decode(orders, decode_order).on_error(on_error),
        )
        .key_by(|(_, order)| order.symbol)
        .named("order symbol")
        .map(|(sequence, order)| (sequence, Event::Order(order)));
    quotes.merge(&[orders]).stateful(
        "spread",
        |_| Market::default(),
        |market, _, (sequence, event)| match event {
            Event::Quote(quote) => {
                market.quote(&quote);
                Some(Handled {
                    order: false,
                    sequence,
                    result: None,
                })
            }
            Event::Order(order) => {
                let result = market.order(&order);
                Some(Handled {
                    order: true,
                    sequence,
                    result,
                })
            }
        },
    )
}

/// Sends the rejected orders to `sink`.
pub fn reject(handled: &KeyedStream<Symbol, Handled>, sink: TcpSink) {
    handled
        .filter_map(|handled| handled.result)
        .named("rejected")
        .values()
        .sink("results", encoded(sink));
}

fn encoded(sink: TcpSink) -> impl Sink<Vec<OrderResult>> {
    codec::encode(sink, |result: &OrderResult, out| {
        out.extend_from_slice(&result.encode())
    })
}

#[cfg(test)]
mod tests {
    use super::super::generate::{initial_quotes, running_orders, running_quotes};
    use super::*;

    fn quote(bid: f64, offer: f64) -> Quote {
        Quote {
            symbol: *b"   A",
            time: [b'0'; 21],
            bid,
            offer,
        }
    }

    #[test]
    fn wide_spreads_and_unknown_symbols_reject() {
        let order = running_orders(1, 1).next().expect("one order");
        let mut market = Market::default();
        assert!(market.order(&order).is_some());
        for (bid, offer, rejects) in [
            (10.0, 10.0, false),
            (10.0, 10.06, true),
            (0.5, 0.54, true),
            (10.0, 10.04, false),
        ] {
            market.quote(&quote(bid, offer));
            let result = market.order(&order);
            assert_eq!(result.is_some(), rejects, "{bid} {offer}");
            assert!(
                result.is_none_or(|result| (result.last_bid, result.last_offer) == (bid, offer))
            );
        }
    }

    #[test]
    fn one_order_in_seventy_thousand_is_rejected() {
        let mut markets = std::collections::HashMap::<Symbol, Market>::new();
        for quote in initial_quotes(1).chain(running_quotes(10_000, 1)) {
            markets.entry(quote.symbol).or_default().quote(&quote);
        }
        let rejected = running_orders(350_000, 1)
            .filter(|order| markets[&order.symbol].order(order).is_some())
            .count();
        assert_eq!(rejected, 5);
    }
}
