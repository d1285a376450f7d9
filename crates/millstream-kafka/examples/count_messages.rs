//! Reads a topic to its end and counts its messages: the Rust row of the Kafka benchmark.
//!
//!     count_messages SERVERS TOPIC
//!
//! Prints the number of messages, and messages per second.

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Options};
use millstream_kafka::{End, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, topic] = arguments.as_slice() else {
        return Err("usage: count_messages SERVERS TOPIC".into());
    };
    let flow = Flow::new("count");
    let source = read(servers, [topic]).end(End::Latest).messages();
    let nothing = Collected::new();
    flow.source("in", source)
        .filter(|_| false)
        .sink("out", nothing.sink());
    let report = flow.run(Options::workers(1))?;
    let count = report.step("in").map_or(0, |step| step.items_out);
    let rate = count as f64 / report.elapsed.as_secs_f64();
    #[expect(clippy::print_stdout, reason = "it is the output of the program")]
    {
        println!("{count} {rate}");
    }
    Ok(())
}
