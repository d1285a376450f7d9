//! The Rust end of `test_service_languages.py`: publishes values of all types, and passes on what it is called with.
//!
//! `everything publish JOURNAL COUNT`, `everything pass IN OUT`

use std::collections::BTreeMap;
use std::process::ExitCode;

use millstream::journal::{Journal, Options};
use millstream::service::{Service, Settings, publisher};
use millstream::wire::{Cause, Decimal, Timestamp};

#[derive(Clone, millstream::Wire)]
enum Side {
    Buy,
    Sell,
}

#[derive(Clone, millstream::Wire)]
struct Leg {
    symbol: String,
    ratio: u8,
}

#[derive(Clone, millstream::Wire)]
enum Event {
    Placed { id: String, leg: Leg },
    Moved { by: i64, side: Option<Side> },
    Closed,
}

impl Event {
    fn of(n: i64) -> Self {
        match n % 3 {
            0 => Event::Placed {
                id: format!("E-{n}"),
                leg: Leg::of(n),
            },
            1 => Event::Moved {
                by: n,
                side: (n % 2 == 0).then_some(Side::Sell),
            },
            _ => Event::Closed,
        }
    }
}

impl Leg {
    fn of(ratio: i64) -> Self {
        Leg {
            symbol: format!("LEG-{ratio}"),
            ratio: (ratio % 256) as u8,
        }
    }
}

#[derive(millstream::Wire)]
struct Everything<'a> {
    flag: bool,
    i8: i8,
    i16: i16,
    i32: i32,
    i64: i64,
    u8: u8,
    u16: u16,
    u32: u32,
    u64: u64,
    f32: f32,
    f64: f64,
    char: char,
    text: &'a str,
    bytes: Vec<u8>,
    decimal: Decimal<'a>,
    at: Timestamp,
    side: Side,
    leg: Leg,
    some: Option<i64>,
    none: Option<&'a str>,
    legs: Vec<Leg>,
    table: BTreeMap<String, Vec<i64>>,
    nested: Vec<Vec<Option<f64>>>,
    event: Event,
    last: Option<Event>,
    events: Vec<Event>,
}

/// All types, by themselves and within each other.
#[millstream::interface]
trait Values {
    fn value(&mut self, number: i64, value: &Everything<'_>);
}

/// An interface of which the other end has a later version.
#[millstream::interface]
trait Prices {
    fn price(&mut self, symbol: &str, value: f64);
}

fn publish(journal: &str, count: i64) -> Result<(), Cause> {
    let journal = Journal::open(journal, Options::default())?;
    let mut values = publisher::<dyn Values>(&journal)?;
    let mut prices = publisher::<dyn Prices>(&journal)?;
    for n in 0..count {
        let text = format!("n\u{fc}mber {n} \u{1f980}");
        let value = Everything {
            flag: n % 2 == 0,
            i8: (n % 256 - 128) as i8,
            i16: (n * 257 % 65_536 - 32_768) as i16,
            i32: (n * 65_537 - 2_000_000_000) as i32,
            i64: i64::MIN + n,
            u8: (n % 256) as u8,
            u16: (n * 257 % 65_536) as u16,
            u32: (4_000_000_000 + n) as u32,
            u64: u64::MAX - n as u64,
            f32: n as f32 / 4.0,
            f64: n as f64 / 10.0,
            char: char::from(b'A' + (n % 26) as u8),
            text: &text,
            bytes: vec![(n % 256) as u8; (n % 300) as usize],
            decimal: Decimal::new(format!("{n}.50"))?,
            at: Timestamp(1_795_253_400_000_000_000 + n),
            side: if n % 2 == 0 { Side::Buy } else { Side::Sell },
            leg: Leg::of(n),
            some: (n % 3 > 0).then_some(-n),
            none: None,
            legs: (0..n % 20).map(Leg::of).collect(),
            table: (0..n % 18)
                .map(|at| (format!("key {at:02}"), (0..at).collect()))
                .collect(),
            nested: vec![vec![], vec![None, Some(n as f64)]],
            event: Event::of(n),
            last: (n % 4 > 0).then(|| Event::of(n + 1)),
            events: (0..n % 5).map(Event::of).collect(),
        };
        values.value(n, &value);
        prices.price("VOD.L", n as f64);
    }
    values.check()?;
    prices.check()
}

/// Calls others as it is called.
struct Pass<V, P> {
    values: V,
    prices: P,
}

impl<V: Values, P> Values for Pass<V, P> {
    fn value(&mut self, number: i64, value: &Everything<'_>) {
        self.values.value(number, value);
    }
}

impl<V, P: Prices> Prices for Pass<V, P> {
    fn price(&mut self, symbol: &str, value: f64) {
        self.prices.price(symbol, value);
    }
}

fn pass(from: &str, to: &str) -> Result<(), Cause> {
    let from = Journal::open(from, Options::default())?;
    let service = Service::new(&Journal::open(to, Options::default())?)?;
    let pass = Pass {
        values: service.publisher::<dyn Values>()?,
        prices: service.publisher::<dyn Prices>()?,
    };
    let setup = service.component(pass).input::<dyn Values>(&from)?;
    let mut runner = setup
        .input::<dyn Prices>(&from)?
        .start(Settings::default())?;
    runner.drain()?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["publish", journal, count] => count
            .parse()
            .map_err(Cause::from)
            .and_then(|count| publish(journal, count)),
        ["pass", from, to] => pass(from, to),
        _ => Err("usage: everything publish JOURNAL COUNT | everything pass IN OUT".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("everything: {}", millstream::journal::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
