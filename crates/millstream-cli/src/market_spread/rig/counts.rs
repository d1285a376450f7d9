//! Whether a run of Market Spread did what was ordered: its counts, and each result against the one that is expected.
//!
//! The data are made from a seed, and running quotes never change a symbol that rejects. So the result of each rejected
//! order is known in advance, but for the moment at which it was rejected. The orders of a symbol stay in order on one
//! worker and one connection, so that results are compared symbol by symbol, whatever order the symbols come in.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::data::Kind;
use crate::failure::Failure;
use crate::market_spread::flow::Market;
use crate::market_spread::generate::{initial_quotes, running_orders};
use crate::market_spread::messages::{OrderResult, Symbol};

/// The length of the prefix of a message in its framing.
const PREFIX: usize = 4;

/// One stream, as its sender reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) ordered: u64,
    pub(super) sent: u64,
}

impl Stream {
    /// A stream of the report of `millstream send`.
    pub(super) fn of(report: &Value) -> Self {
        let number = |name: &str| report[name].as_u64().unwrap_or(0);
        Stream {
            ordered: number("ordered"),
            sent: number("messages"),
        }
    }
}

/// How many messages came how far, over both streams and without the initial quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Messages that were due by the end of the run; without a rate those that were sent.
    pub ordered: u64,
    /// Messages that were handed to the sockets.
    pub sent: u64,
    /// Messages that the state step has handled.
    pub handled: u64,
    /// Results that the orders which were sent give.
    pub expected_results: u64,
    /// Results that the receiver got.
    pub results: u64,
    /// The first results that are not what was expected, in words.
    pub wrong_results: Vec<String>,
    /// Whether a signal ended the run. What became due in its last moment was not sent then.
    pub interrupted: bool,
}

impl Counts {
    /// What does not agree, in words; nothing if all was done that was ordered.
    #[must_use]
    pub fn disagreement(&self) -> Option<String> {
        let agree = (self.sent == self.ordered || self.interrupted)
            && self.handled == self.sent
            && self.results == self.expected_results;
        if agree && self.wrong_results.is_empty() {
            return None;
        }
        let mut text = format!(
            "the counts disagree: ordered {}, sent {}, handled {}; results expected {}, received {}",
            self.ordered, self.sent, self.handled, self.expected_results, self.results
        );
        if let Some(wrong) = self.wrong_results.first() {
            text += &format!("; {wrong}");
        }
        Some(text)
    }

    /// Fails a run whose counts disagree, whatever its figures say.
    ///
    /// # Errors
    /// The disagreement, in words.
    pub fn agree(&self) -> Result<(), Failure> {
        self.disagreement()
            .map_or(Ok(()), |what| Err(Failure::failed(what)))
    }
}

/// The results that the first `orders` messages of the stream of orders give, in order.
fn expected(seed: u64, orders: u64) -> Vec<OrderResult> {
    let mut markets = HashMap::<Symbol, Market>::new();
    for quote in initial_quotes(seed) {
        markets.entry(quote.symbol).or_default().quote(&quote);
    }
    let count = Kind::MarketSpreadOrders.default_count();
    let unknown = Market::default();
    // The stream is the file again and again.
    let rejected: Vec<(u64, OrderResult)> = (0..count)
        .zip(running_orders(count, seed))
        .filter_map(|(index, order)| {
            let market = markets.get(&order.symbol).unwrap_or(&unknown);
            Some((index, market.order(&order)?))
        })
        .collect();
    (0..orders.div_ceil(count))
        .flat_map(|round| {
            rejected
                .iter()
                .map(move |(at, result)| (round * count + at, *result))
        })
        .take_while(|(at, _)| *at < orders)
        .map(|(_, result)| result)
        .collect()
}

/// A result without the moment at which it was given.
fn timeless(result: OrderResult) -> OrderResult {
    OrderResult {
        timestamp: 0,
        ..result
    }
}

fn by_symbol(results: impl IntoIterator<Item = OrderResult>) -> HashMap<Symbol, Vec<OrderResult>> {
    let mut found = HashMap::<Symbol, Vec<OrderResult>>::new();
    for result in results {
        found
            .entry(result.symbol)
            .or_default()
            .push(timeless(result));
    }
    found
}

/// The results in a file that the receiver wrote.
fn read(path: &Path) -> Result<Vec<OrderResult>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let frames = bytes.chunks(PREFIX + OrderResult::LENGTH);
    frames
        .map(|frame| {
            let body = frame.get(PREFIX..).unwrap_or_default();
            OrderResult::decode(body).map_err(|error| format!("{}: {error}", path.display()))
        })
        .collect()
}

/// What is wrong with the results of some symbols: the first of each.
fn compare(received: Vec<OrderResult>, expected: Vec<OrderResult>) -> Vec<String> {
    let (received, expected) = (by_symbol(received), by_symbol(expected));
    let mut symbols: Vec<&Symbol> = received.keys().chain(expected.keys()).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let none = Vec::new();
    let wrong = symbols.into_iter().filter_map(|symbol| {
        let got = received.get(symbol).unwrap_or(&none);
        let want = expected.get(symbol).unwrap_or(&none);
        let at = (0..got.len().max(want.len())).find(|&at| got.get(at) != want.get(at))?;
        let name = String::from_utf8_lossy(symbol);
        let shown = |result: Option<&OrderResult>| {
            result.map_or("nothing".to_owned(), |result| format!("{result:?}"))
        };
        Some(format!(
            "result {at} of symbol {}: expected {}, received {}",
            name.trim(),
            shown(want.get(at)),
            shown(got.get(at))
        ))
    });
    wrong.collect()
}

/// Compares what a run ordered, sent, handled and received; `orders` is the stream of orders, `path` what the receiver wrote.
pub(super) fn judge(
    seed: u64,
    (quotes, orders): (Stream, Stream),
    handled: u64,
    path: &Path,
    interrupted: bool,
) -> Result<Counts, String> {
    let received = read(path)?;
    let expected = expected(seed, orders.sent);
    Ok(Counts {
        ordered: quotes.ordered + orders.ordered,
        sent: quotes.sent + orders.sent,
        handled,
        expected_results: expected.len() as u64,
        results: received.len() as u64,
        wrong_results: compare(received, expected),
        interrupted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(ordered: u64, sent: u64) -> Stream {
        Stream { ordered, sent }
    }

    fn written(results: &[OrderResult]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut bytes = Vec::new();
        for result in results {
            bytes.extend((OrderResult::LENGTH as u32).to_be_bytes());
            bytes.extend(result.encode());
        }
        std::fs::write(file.path(), bytes).expect("it is written");
        file
    }

    fn judged(streams: (Stream, Stream), handled: u64, results: &[OrderResult]) -> Counts {
        let file = written(results);
        judge(1, streams, handled, file.path(), false).expect("it is read")
    }

    #[test]
    fn a_run_that_did_all_that_was_ordered_agrees_in_any_order_of_symbols() {
        let mut results = expected(1, 700_000);
        assert_eq!(results.len(), 10);
        results[0].timestamp = 17;
        let of_one = |results: &[OrderResult]| by_symbol(results.iter().copied());
        let mut symbols: Vec<_> = of_one(&results).into_iter().collect();
        symbols.sort_by_key(|(symbol, _)| *symbol);
        let shuffled: Vec<OrderResult> = symbols.into_iter().flat_map(|(_, all)| all).collect();
        let all = (stream(700_000, 700_000), stream(700_000, 700_000));
        for results in [results, shuffled] {
            assert_eq!(judged(all, 1_400_000, &results).disagreement(), None);
        }
    }

    #[test]
    fn each_count_that_is_missed_is_reported() {
        let results = expected(1, 350_000);
        let whole = stream(350_000, 350_000);
        for (streams, handled, kept) in [
            ((stream(350_001, 350_000), whole), 700_000, 5),
            ((whole, whole), 699_999, 5),
            ((whole, whole), 700_001, 5),
            ((whole, whole), 700_000, 4),
        ] {
            let found = judged(streams, handled, &results[..kept]).disagreement();
            assert!(
                found
                    .as_ref()
                    .is_some_and(|text| text.starts_with("the counts disagree: ordered")),
                "{found:?}"
            );
        }
        assert_eq!(
            judged((whole, whole), 700_000, &results).disagreement(),
            None
        );
    }

    #[test]
    fn a_result_with_another_value_is_told_with_its_symbol() {
        let whole = stream(350_000, 350_000);
        let good = expected(1, 350_000);
        for change in [
            |result: &mut OrderResult| result.last_bid += 0.25,
            |result: &mut OrderResult| result.quantity += 10.0,
            |result: &mut OrderResult| result.id[0] ^= 1,
            |result: &mut OrderResult| result.symbol = *b"   A",
        ] {
            let mut results = good.clone();
            change(&mut results[3]);
            let found = judged((whole, whole), 700_000, &results).disagreement();
            assert!(
                found
                    .as_ref()
                    .is_some_and(|text| text.contains("of symbol ")),
                "{found:?}"
            );
        }
        // Twice the same in place of another.
        let mut results = good;
        results[4] = results[3];
        assert!(
            judged((whole, whole), 700_000, &results)
                .disagreement()
                .is_some()
        );
    }
}
