//! Reads a topic to its end and counts its messages: the Rust rows of the Kafka benchmark.
//!
//!     count_messages SERVERS TOPIC [MESSAGES]
//!
//! Prints the number of messages, and messages per second. With MESSAGES a consumer of `rdkafka` reads that many,
//! without a flow.

use std::time::{Duration, Instant};

use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Options};
use millstream_kafka::{End, read};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (count, rate) = match arguments.as_slice() {
        [servers, topic] => by_flow(servers, topic)?,
        [servers, topic, messages] => by_consumer(servers, topic, messages.parse()?)?,
        _ => return Err("usage: count_messages SERVERS TOPIC [MESSAGES]".into()),
    };
    #[expect(clippy::print_stdout, reason = "it is the output of the program")]
    {
        println!("{count} {rate}");
    }
    Ok(())
}

fn by_flow(servers: &str, topic: &str) -> Result<(u64, f64), Failure> {
    let flow = Flow::new("count");
    let source = read(servers, [topic]).end(End::Latest).messages();
    let nothing = Collected::new();
    flow.source("in", source)
        .filter(|_| false)
        .sink("out", nothing.sink());
    let report = flow.run(Options::workers(1))?;
    let count = report.step("in").map_or(0, |step| step.items_out);
    Ok((count, count as f64 / report.elapsed.as_secs_f64()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no worker whose clock could be used"
)]
fn by_consumer(servers: &str, topic: &str, messages: u64) -> Result<(u64, f64), Failure> {
    let began = Instant::now();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "count")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.min.messages", "100000")
        .set("fetch.wait.max.ms", "100")
        .create()?;
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&from)?;
    let mut count = 0;
    while count < messages {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            message?;
            count += 1;
        }
    }
    Ok((count, count as f64 / began.elapsed().as_secs_f64()))
}
