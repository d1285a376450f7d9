//! The data of Market Spread, made from a seed: the messages of `examples/market_spread`, as bytes.
//!
//! There are 350 symbols, of which the last 15 are quoted once, with a spread that rejects orders. The invariant: in a
//! file of orders exactly [`REJECTING_ORDERS`] are for these, so that what comes out can be counted.
//!
//! | messages | symbol | values |
//! |---|---|---|
//! | initial quotes | each once | bid = list price; spread 0, rejecting ones 0.051 to 0.078 |
//! | running quotes | uniform over 335 | bid = list price + U(0, 1), offer = bid |
//! | orders | 5 rejecting; 79 % over the first 67, else over 335 | price = list price, quantity 10 to 650 by 10 |

use std::collections::BTreeSet;

use millstream_journal::random::Random;

/// A ticker symbol, left-padded with spaces.
type Symbol = [u8; 4];
/// A quote: `u8 2 | symbol 4 | time 21 | f64 bid | f64 offer`, big-endian.
pub(super) type Quote = [u8; 42];
/// An order: `u8 1 | u8 side | u32 account | id 6 | symbol 4 | f64 quantity | f64 price | time 21`, big-endian.
pub(super) type Order = [u8; 53];

/// The sides of an order: to buy, to sell.
const SIDES: [u8; 2] = [1, 2];

/// How many symbols there are.
pub(super) const SYMBOLS: usize = 350;
/// How many of them, the first ones, have no spread.
const NORMAL_SYMBOLS: usize = 335;
/// How many of them, the first ones, get most of the orders.
const BUSY_SYMBOLS: usize = 67;
/// The probability that an order is for a busy symbol because it is busy.
const BUSY_SHARE: f64 = 0.79;
/// How many orders of a file are for rejecting symbols (all, if it has fewer).
const REJECTING_ORDERS: u64 = 5;
/// The default number of messages of a running file: one order in 70,000 has a result.
pub(super) const RUNNING_MESSAGES: u64 = 350_000;

/// The symbol of this number, below [`SYMBOLS`]: one to four letters, left-padded.
///
/// Symbols count in letters (A to Z, AA to ZZ, and so on), with a stride that brings the last near ZZZZ.
fn symbol(number: usize) -> Symbol {
    let mut symbol = *b"    ";
    let mut rest = number * 1357 + 1;
    for letter in symbol.iter_mut().rev() {
        if rest > 0 {
            *letter = b'A' + ((rest - 1) % 26) as u8;
            rest = (rest - 1) / 26;
        }
    }
    symbol
}

/// The list price of the symbol of this number: from 10 to 109.75, the same for every seed.
fn list_price(number: usize) -> f64 {
    10.0 + (number * 37 % 400) as f64 * 0.25
}

/// The time of message `index`: one per millisecond from the opening at 09:30; the clock starts again at midnight.
fn time_text(index: u64) -> [u8; 21] {
    let mut text = *b"20260105-00:00:00.000";
    let milliseconds = (9 * 3600 + 30 * 60) * 1000 + index;
    let seconds = milliseconds / 1000;
    let mut put = |at: usize, value: u64| text[at] = b'0' + (value % 10) as u8;
    for (at, value) in [
        (9, seconds / 3600 % 24),
        (12, seconds / 60 % 60),
        (15, seconds % 60),
    ] {
        put(at, value / 10);
        put(at + 1, value);
    }
    put(18, milliseconds / 100);
    put(19, milliseconds / 10);
    put(20, milliseconds);
    text
}

/// The initial quotes, one for each symbol.
pub(super) fn initial_quotes(seed: u64) -> impl Iterator<Item = Quote> {
    let mut random = Random::new(seed);
    (0..SYMBOLS).map(move |number| {
        let spread = if number < NORMAL_SYMBOLS {
            0.0
        } else {
            0.051 + 0.027 * random.unit()
        };
        let bid = list_price(number);
        quote(number, number as u64, bid, bid + spread)
    })
}

/// Running quotes: none of them has a spread.
pub(super) fn running_quotes(count: u64, seed: u64) -> impl Iterator<Item = Quote> {
    let mut random = Random::new(seed);
    (0..count).map(move |index| {
        let number = random.below(NORMAL_SYMBOLS as u64) as usize;
        let bid = list_price(number) + random.unit();
        quote(number, index, bid, bid)
    })
}

/// Running orders, [`REJECTING_ORDERS`] of them for rejecting symbols, at random places.
pub(super) fn running_orders(count: u64, seed: u64) -> impl Iterator<Item = Order> {
    let mut random = Random::new(seed);
    let mut rejecting = BTreeSet::new();
    while (rejecting.len() as u64) < REJECTING_ORDERS.min(count) {
        rejecting.insert(random.below(count));
    }
    (0..count).map(move |index| {
        let number = if rejecting.contains(&index) {
            NORMAL_SYMBOLS as u64 + random.below((SYMBOLS - NORMAL_SYMBOLS) as u64)
        } else if random.unit() < BUSY_SHARE {
            random.below(BUSY_SYMBOLS as u64)
        } else {
            random.below(NORMAL_SYMBOLS as u64)
        } as usize;
        joined(&[
            &[1, SIDES[random.below(2) as usize]],
            &(1 + random.below(300) as u32).to_be_bytes(),
            &order_id(&mut random),
            &symbol(number),
            &((10 + 10 * random.below(65)) as f64).to_be_bytes(),
            &list_price(number).to_be_bytes(),
            &time_text(index),
        ])
    })
}

fn quote(number: usize, index: u64, bid: f64, offer: f64) -> Quote {
    joined(&[
        &[2],
        &symbol(number),
        &time_text(index),
        &bid.to_be_bytes(),
        &offer.to_be_bytes(),
    ])
}

/// The fields of a message, one after the other.
fn joined<const N: usize>(fields: &[&[u8]]) -> [u8; N] {
    let mut message = [0; N];
    let mut at = 0;
    for field in fields {
        message[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    message
}

fn order_id(random: &mut Random) -> [u8; 6] {
    const ALPHANUMERIC: &[u8; 36] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    // One number has room for six characters: 36^6 is far below 2^64.
    let mut number = random.below(36u64.pow(6)) as usize;
    std::array::from_fn(|_| {
        let character = ALPHANUMERIC[number % 36];
        number /= 36;
        character
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const SEED: u64 = 42;

    /// The field at `at`.
    fn field<const N: usize>(message: &[u8], at: usize) -> [u8; N] {
        message[at..at + N].try_into().unwrap()
    }

    fn number(message: &[u8], at: usize) -> f64 {
        f64::from_be_bytes(field(message, at))
    }

    /// Where the bid of a quote is, and its offer.
    const BID: usize = 26;
    const OFFER: usize = 34;

    fn numbers() -> BTreeMap<Symbol, usize> {
        (0..SYMBOLS)
            .map(|number| (symbol(number), number))
            .collect()
    }

    #[test]
    fn symbols_are_unique_and_left_padded() {
        assert_eq!(numbers().len(), SYMBOLS);
        for symbol in numbers().keys() {
            let text = std::str::from_utf8(symbol).unwrap().trim_start();
            assert!(
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()),
                "{text:?}"
            );
        }
        assert_eq!(
            (symbol(0), symbol(1), symbol(349)),
            (*b"   A", *b" AZF", *b"ZXOD")
        );
    }

    #[test]
    fn times_count_in_milliseconds() {
        assert_eq!(&time_text(0), b"20260105-09:30:00.000");
        assert_eq!(&time_text(61_234), b"20260105-09:31:01.234");
        assert_eq!(
            &time_text(14 * 3_600_000 + 30 * 60_000 + 7),
            b"20260105-00:00:00.007"
        );
    }

    #[test]
    fn initially_fifteen_symbols_have_a_rejecting_spread() {
        let quotes: Vec<_> = initial_quotes(SEED).collect();
        assert_eq!(quotes.len(), SYMBOLS);
        let spreads: Vec<f64> = quotes
            .iter()
            .map(|quote| number(quote, OFFER) - number(quote, BID))
            .collect();
        assert!(
            spreads[..NORMAL_SYMBOLS]
                .iter()
                .all(|&spread| spread == 0.0)
        );
        assert_eq!(spreads[NORMAL_SYMBOLS..].len(), 15);
        assert!(
            spreads[NORMAL_SYMBOLS..]
                .iter()
                .all(|spread| (0.0509..0.0781).contains(spread)),
            "{spreads:?}"
        );
    }

    #[test]
    fn running_quotes_are_uniform_and_without_spread() {
        let numbers = numbers();
        let mut counts = [0u32; SYMBOLS];
        for quote in running_quotes(RUNNING_MESSAGES, SEED) {
            let symbol = numbers[&field(&quote, 1)];
            counts[symbol] += 1;
            let bid = number(&quote, BID);
            assert_eq!((quote[0], bid), (2, number(&quote, OFFER)));
            assert!((0.0..1.0).contains(&(bid - list_price(symbol))));
        }
        assert_eq!(counts.iter().sum::<u32>(), 350_000);
        assert_eq!(counts[NORMAL_SYMBOLS..], [0; 15]);
        // 1045 are expected, with a standard deviation of 32.
        assert!(
            counts[..NORMAL_SYMBOLS]
                .iter()
                .all(|count| (880..1210).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn five_orders_of_a_file_are_for_rejecting_symbols() {
        let numbers = numbers();
        let rejecting = |count, seed| {
            running_orders(count, seed)
                .filter(|order| numbers[&field(order, 12)] >= NORMAL_SYMBOLS)
                .count()
        };
        for seed in 0..5 {
            assert_eq!(rejecting(20_000, seed), 5, "seed {seed}");
        }
        assert_eq!(
            (
                rejecting(350_000, SEED),
                rejecting(6, 1),
                rejecting(3, 1),
                rejecting(0, 1)
            ),
            (5, 5, 3, 0)
        );
    }

    #[test]
    fn orders_are_mostly_for_busy_symbols_and_within_their_ranges() {
        let numbers = numbers();
        let mut counts = [0u32; SYMBOLS];
        let mut buys = 0;
        let mut accounts = BTreeSet::new();
        let mut quantities = BTreeSet::new();
        for order in running_orders(RUNNING_MESSAGES, SEED) {
            let symbol = numbers[&field(&order, 12)];
            counts[symbol] += 1;
            buys += u32::from(order[1] == SIDES[0]);
            accounts.insert(u32::from_be_bytes(field(&order, 2)));
            quantities.insert(number(&order, 16) as u64);
            assert!(order[0] == 1 && SIDES.contains(&order[1]));
            assert!(order[6..12].iter().all(u8::is_ascii_alphanumeric));
            assert_eq!(number(&order, 24), list_price(symbol));
        }
        assert_eq!(counts.iter().sum::<u32>(), 350_000);
        // A busy symbol has 0.79 and its share of the rest: 0.79 + 0.21 * 67 / 335 = 0.832.
        let busy = f64::from(counts[..BUSY_SYMBOLS].iter().sum::<u32>()) / 350_000.0;
        assert!((0.829..0.835).contains(&busy), "{busy}");
        assert!((173_500..176_500).contains(&buys), "{buys}");
        assert_eq!(accounts, (1..=300).collect());
        assert_eq!(quantities, (1..=65).map(|tens| tens * 10).collect());
    }
}
