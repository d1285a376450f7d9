//! Lines of `PRODUCT CENTS` over TCP, the sum of each product, and a file of dead letters for lines that are none.
//!
//! Run: `cargo run --release --example tcp_letters`, and in another shell `printf 'tea 300\nrum nine\ntea 400\n' | nc
//! -N 127.0.0.1 7001`. The flow ends with the first client, prints `tea 700` and writes the line `rum nine`, with the
//! error, to `letters.txt`.
//!
//! | variable | default | |
//! |---|---|---|
//! | `LISTEN` | `127.0.0.1:7001` | where the flow listens |
//! | `LETTERS` | `letters.txt` | the file of the dead letters |

use std::env;

use millstream::flow::{Framing, tcp};
use millstream::prelude::*;

/// Parses a line.
fn order(line: &[u8]) -> Result<(String, u64), Cause> {
    let line = std::str::from_utf8(line)?;
    let (product, cents) = line
        .split_once(' ')
        .ok_or("a line has a product and cents")?;
    Ok((product.to_owned(), cents.parse()?))
}

fn main() -> Result<(), Cause> {
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:7001".to_owned());
    let letters = env::var("LETTERS").unwrap_or_else(|_| "letters.txt".to_owned());

    let lines = tcp::listen(&address)
        .framing(Framing::Lines)
        .connections(1)
        .on_bound(|address| eprintln!("listening on {address}"));
    let letters = codec::encode(files::write(letters), codec::display);
    let orders = codec::decode(lines, order).on_error(OnError::dead_letter(letters));

    let flow = Flow::new("orders");
    flow.source("orders", orders)
        .into_keyed()
        .sum(Emit::End)
        .items()
        .map(|(product, cents)| format!("{product} {cents}"))
        .sink("out", stdout::stdout());
    let report = flow.run(Options {
        signals: true,
        ..Options::default()
    })?;
    let skipped = report.step("orders").map_or(0, |step| step.skipped);
    eprintln!("{skipped} lines were no orders");
    Ok(())
}
