//! Market Spread: two streams over TCP meet in one state for each symbol; rejected orders go out over TCP.
//!
//! ```text
//! quotes --+
//!          +--> by symbol --> spread --> results
//! orders --+
//! ```
//!
//! With `STATE=DIR` it resumes after a crash: what was read is in the state directory before it is processed, and
//! results are appended to the journal `RESULTS_JOURNAL`, each once.

mod market;
mod messages;

use std::env;
use std::error::Error;
use std::time::Duration;

use millstream::flow::SourceExt;
use millstream::flow::durable::Retain;
use millstream::flow::source::Source;
use millstream::flow::tcp::TcpSource;
use millstream::flow::{Flow, Frames, OnError, Options, Recovery, codec, journals, tcp};

use self::market::{Event, Market};
use self::messages::{Order, OrderResult, Quote};

fn main() -> Result<(), Box<dyn Error>> {
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    // Two connections bring quotes: the initial ones, then the running ones. Then the stream has ended.
    let quotes = tcp::listen(&setting("QUOTES", "127.0.0.1:7001")).connections(2);
    let orders = tcp::listen(&setting("ORDERS", "127.0.0.1:7002")).connections(1);
    let results = tcp::send_to(&setting("RESULTS", "127.0.0.1:7003"));
    let workers = setting("WORKERS", "1").parse()?;
    let state = env::var("STATE").ok();

    let flow = Flow::new("market-spread");
    flow.saves::<Market>();
    let source = |input: TcpSource| -> Box<dyn Source<Frames>> {
        match state {
            // All of it is kept, to be replayed.
            Some(_) => Box::new(input.durable().keep(Retain::All)),
            None => Box::new(input),
        }
    };
    // A message that is no quote is counted, reported with its offset, and skipped.
    let quotes = codec::decode(source(quotes), Quote::decode).on_error(OnError::Skip);
    let orders = codec::decode(source(orders), Order::decode).on_error(OnError::Skip);
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
        |market, _symbol, event| market.handle(event),
    );
    let encode = |result: &OrderResult, out: &mut Vec<u8>| out.extend_from_slice(&result.encode());
    match env::var("RESULTS_JOURNAL") {
        Ok(path) => {
            let journal = codec::encode(journals::append(path), encode);
            rejected.values().sink("results", journal);
        }
        Err(_) => {
            let results = codec::encode(results, encode);
            rejected.values().sink("results", results);
        }
    }

    let recovery = |dir| Recovery::new(dir).epoch(Duration::from_millis(100));
    let report = flow.run(Options {
        workers,
        signals: true,
        recovery: state.map(recovery),
        ..Options::default()
    })?;
    eprint!("{report}");
    Ok(())
}
