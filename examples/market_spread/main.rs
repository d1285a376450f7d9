//! Market Spread: two streams over TCP meet in one state for each symbol; rejected orders go out over TCP.
//!
//! ```text
//! quotes --+
//!          +--> by symbol --> spread --> results
//! orders --+
//! ```

use std::env;
use std::error::Error;

use millstream::flow::{Flow, OnError, Options, codec, tcp};
use millstream::market_spread::flow::{Event, Market};
use millstream::market_spread::messages::{Order, OrderResult, Quote};

fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    // Two connections bring quotes: the initial ones, then the running ones. Then the stream has ended.
    let quotes = tcp::listen(&setting("QUOTES", "127.0.0.1:7001")).connections(2);
    let orders = tcp::listen(&setting("ORDERS", "127.0.0.1:7002")).connections(1);
    let results = tcp::send_to(&setting("RESULTS", "127.0.0.1:7003"));
    let workers = setting("WORKERS", "1").parse()?;

    let flow = Flow::new("market-spread");
    // A message that is no quote is counted, reported with its offset, and passed over.
    let quotes = codec::decode(quotes, Quote::decode).on_error(OnError::Skip);
    let orders = codec::decode(orders, Order::decode).on_error(OnError::Skip);
    let quotes = flow
        .source("quotes", quotes)
        .key_by(|quote| quote.symbol)
        .map(Event::Quote);
    let orders = flow
        .source("orders", orders)
        .key_by(|order| order.symbol)
        .map(Event::Order);
    let rejected = quotes.merge(&[orders]).stateful(
        "spread",
        |_symbol| Market::default(),
        |market, _symbol, event| match event {
            Event::Quote(quote) => {
                market.quote(&quote);
                None
            }
            Event::Order(order) => market.order(&order),
        },
    );
    let encode = |result: &OrderResult, out: &mut Vec<u8>| out.extend_from_slice(&result.encode());
    rejected
        .values()
        .sink("results", codec::encode(results, encode));

    let report = flow.run(Options {
        workers,
        signals: true,
        ..Options::default()
    })?;
    eprint!("{report}");
    Ok(())
}
