//! How many messages a second a flow in Rust reads: `cargo run --release --example to_nothing -- SERVERS TOPIC`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_flow::clock::now_ns;
use millstream_flow::{Flow, Options};
use millstream_kafka::{End, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(servers), Some(topic)) = (arguments.next(), arguments.next()) else {
        return Err("usage: to_nothing SERVERS TOPIC".into());
    };
    let read_messages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read_messages);
    let flow = Flow::new("to nothing");
    flow.source("in", read(servers, [topic]).end(End::Latest).messages())
        .map_batch(move |batch: Vec<millstream_kafka::Message>| {
            counted.fetch_add(batch.len(), Ordering::Relaxed);
            Vec::<u8>::new()
        })
        .sink("out", millstream_flow::testing::Collected::new().sink());
    let began = now_ns();
    flow.run(Options::default())?;
    let seconds = (now_ns() - began) as f64 / 1e9;
    let count = read_messages.load(Ordering::Relaxed);
    println!("{count} messages, {:.0} a second", count as f64 / seconds);
    Ok(())
}
