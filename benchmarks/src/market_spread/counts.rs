//! Whether a run of Market Spread did what was ordered: its counts, and each result against the one that is expected.
//!
//! Running quotes never change a symbol that rejects. So the result of each rejected order is known from the files that
//! are sent, but for the moment at which it was rejected. The orders of a symbol stay in order on one
//! worker and one connection, so that results are compared symbol by symbol, whatever order the symbols come in.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use millstream_cli::data::Kind;
use millstream_cli::failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::example::market::{Event, Market};
use super::example::messages::{Order, OrderResult, Quote, Symbol};
use super::files::InputFiles;

/// The length of the prefix of a message in its framing.
const PREFIX: usize = 4;
/// The lengths of quotes and orders.
const QUOTE: usize = 42;
const ORDER: usize = 53;
/// The symbol in a result.
const SYMBOL: Range<usize> = 11..15;
/// The length of a result without its moment, which is last.
const TIMELESS: usize = OrderResult::LENGTH - 8;

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
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

/// The messages of a file, without what frames them.
fn messages(path: &Path, length: usize) -> Result<Vec<Vec<u8>>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let frames = bytes.chunks(PREFIX + length);
    frames
        .map(|frame| {
            if frame.len() == PREFIX + length {
                Ok(frame[PREFIX..].to_vec())
            } else {
                Err(format!("{}: a message is not whole", path.display()))
            }
        })
        .collect()
}

/// The results that the first `orders` messages of the stream of orders give, in order: the stream is the file again
/// and again.
fn expected(files: &InputFiles, orders: u64) -> Result<Vec<Vec<u8>>, String> {
    let mut markets = HashMap::<Symbol, Market>::new();
    for quote in messages(&files.path(Kind::MarketSpreadInitial), QUOTE)? {
        let quote = Quote::decode(&quote)?;
        let market = markets.entry(quote.symbol).or_default();
        market.handle(Event::Quote(quote));
    }
    let file = messages(&files.path(Kind::MarketSpreadOrders), ORDER)?;
    let mut rejected = Vec::new();
    for (index, order) in (0..).zip(&file) {
        let order = Order::decode(order)?;
        let market = markets.entry(order.symbol).or_default();
        let result = market.handle(Event::Order(order));
        rejected.extend(result.map(|result| (index, result.encode().to_vec())));
    }
    let count = file.len() as u64;
    let stream = (0..orders.div_ceil(count)).flat_map(|round| {
        let rejected = rejected.iter();
        rejected.map(move |(at, result)| (round * count + at, result.clone()))
    });
    Ok(stream
        .take_while(|(at, _)| *at < orders)
        .map(|(_, result)| result)
        .collect())
}

/// Results without the moment at which each was given, by the symbol of each.
fn by_symbol(results: Vec<Vec<u8>>) -> HashMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut found = HashMap::<Vec<u8>, Vec<Vec<u8>>>::new();
    for mut result in results {
        result.truncate(TIMELESS);
        let symbol = result[SYMBOL].to_vec();
        found.entry(symbol).or_default().push(result);
    }
    found
}

/// What is wrong with the results of some symbols: the first of each.
fn compare(received: Vec<Vec<u8>>, expected: Vec<Vec<u8>>) -> Vec<String> {
    let received = by_symbol(received);
    let expected = by_symbol(expected);
    let mut symbols: Vec<&Vec<u8>> = received.keys().chain(expected.keys()).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let none = Vec::new();
    let wrong = symbols.into_iter().filter_map(|symbol| {
        let got = received.get(symbol).unwrap_or(&none);
        let want = expected.get(symbol).unwrap_or(&none);
        let at = (0..got.len().max(want.len())).find(|&at| got.get(at) != want.get(at))?;
        let name = String::from_utf8_lossy(symbol);
        let shown = |result: Option<&Vec<u8>>| {
            result.map_or("nothing".to_owned(), |result| {
                result.escape_ascii().to_string()
            })
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

/// Compares what a run ordered, sent, handled and received; `orders` is the stream of orders.
pub(super) fn judge(
    files: &InputFiles,
    (quotes, orders): (Stream, Stream),
    handled: u64,
    interrupted: bool,
) -> Result<Counts, String> {
    let received = messages(&files.results(), OrderResult::LENGTH)?;
    let expected = expected(files, orders.sent)?;
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

    /// The files of a run, and the results of this many orders.
    fn generated(orders: u64) -> (InputFiles, Vec<Vec<u8>>) {
        let files = InputFiles::generate(1).expect("they are written");
        let results = expected(&files, orders).expect("they are read");
        (files, results)
    }

    fn judged(
        files: &InputFiles,
        streams: (Stream, Stream),
        handled: u64,
        results: &[Vec<u8>],
    ) -> Counts {
        let framed = results.iter().flat_map(|result| {
            let prefix = (result.len() as u32).to_be_bytes();
            prefix.into_iter().chain(result.iter().copied())
        });
        std::fs::write(files.results(), framed.collect::<Vec<u8>>()).expect("it is written");
        judge(files, streams, handled, false).expect("it is read")
    }

    #[test]
    fn a_run_that_did_all_that_was_ordered_agrees_in_any_order_of_symbols() {
        let (files, mut results) = generated(700_000);
        assert_eq!(results.len(), 10);
        results[0][TIMELESS] ^= 1;
        let mut shuffled = results.clone();
        shuffled.sort_by_key(|result| result[SYMBOL].to_vec());
        let all = (stream(700_000, 700_000), stream(700_000, 700_000));
        for results in [results, shuffled] {
            assert_eq!(
                judged(&files, all, 1_400_000, &results).disagreement(),
                None
            );
        }
    }

    #[test]
    fn each_count_that_is_missed_is_reported() {
        let (files, results) = generated(350_000);
        let whole = stream(350_000, 350_000);
        for (streams, handled, kept) in [
            ((stream(350_001, 350_000), whole), 700_000, 5),
            ((whole, whole), 699_999, 5),
            ((whole, whole), 700_001, 5),
            ((whole, whole), 700_000, 4),
        ] {
            let found = judged(&files, streams, handled, &results[..kept]).disagreement();
            assert!(
                found
                    .as_ref()
                    .is_some_and(|text| text.starts_with("the counts disagree: ordered")),
                "{found:?}"
            );
        }
        assert_eq!(
            judged(&files, (whole, whole), 700_000, &results).disagreement(),
            None
        );
    }

    #[test]
    fn a_result_with_another_value_is_reported_with_its_symbol() {
        let whole = stream(350_000, 350_000);
        let (files, good) = generated(350_000);
        // In the last bid, the quantity, the name of the order, and the symbol.
        for changed in [36, 17, 5, 14] {
            let mut results = good.clone();
            results[3][changed] ^= 1;
            let found = judged(&files, (whole, whole), 700_000, &results).disagreement();
            assert!(
                found
                    .as_ref()
                    .is_some_and(|text| text.contains("of symbol ")),
                "{found:?}"
            );
        }
        // Twice the same in place of another.
        let mut results = good;
        results[4] = results[3].clone();
        assert!(
            judged(&files, (whole, whole), 700_000, &results)
                .disagreement()
                .is_some()
        );
    }
}
