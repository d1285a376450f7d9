//! The flows that are measured, and the time that a run of one takes.

use std::hint::black_box;
use std::time::Duration;

use millstream_flow::join::Join;
use millstream_flow::{
    Emit, EventTime, Flow, FlowError, KeyedStream, Options, Stream, Timed, Window, generator,
};
use millstream_journal::clock::monotonic_ns;

use crate::figures::median_index;

/// The time of one run, in seconds.
pub(super) fn seconds(flow: &Flow, options: Options) -> Result<f64, FlowError> {
    let start = monotonic_ns();
    flow.run(options)?;
    Ok((monotonic_ns() - start) as f64 / 1e9)
}

pub(super) fn median(values: &[f64]) -> f64 {
    values[median_index(values)]
}

/// Numbers from several partitions, `count` in all.
pub(super) fn numbers(flow: &Flow, count: u64, partitions: usize, batch: usize) -> Stream<u64> {
    let each = count / partitions as u64;
    let source = generator::from_fn(move |n| (n < each).then_some(n));
    flow.source("numbers", source.partitions(partitions).batch_size(batch))
}

/// A sink that only looks.
pub(super) fn swallow<T: Clone + Send + 'static>(stream: &Stream<T>) {
    let none: Stream<u8> = stream.filter_map(|item| {
        black_box(&item);
        None
    });
    none.sink("out", millstream_flow::testing::Collected::new().sink());
}

/// A step that costs about a microsecond of CPU: a hundred rounds of a mixing function.
pub(crate) fn costly(n: u64) -> u64 {
    (0..400u64).fold(n, |x, round| {
        let x = (x ^ round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^ (x >> 29)
    })
}

/// Makes a flow of so many items.
pub(super) type Make = fn(u64) -> Flow;
pub(super) type Case = (&'static str, u64, Make);

pub(super) const CASES: [Case; 8] = [
    ("map, batches of 1,024", 20_000_000, |count| {
        let flow = Flow::new("map");
        swallow(&numbers(&flow, count, 1, 1024).map(|n| n + 1));
        flow
    }),
    ("map, batches of 1", 2_000_000, |count| {
        let flow = Flow::new("map one");
        swallow(&numbers(&flow, count, 1, 1).map(|n| n + 1));
        flow
    }),
    ("stateful, 1,000 keys", 10_000_000, |count| {
        stateful(count, 1_000)
    }),
    ("stateful, 1,000,000 keys", 5_000_000, |count| {
        stateful(count, 1_000_000)
    }),
    ("key_by and count, 1,000 keys", 10_000_000, |count| {
        let flow = Flow::new("count");
        let counts = numbers(&flow, count, 1, 1024)
            .key_by(|n| n % 1000)
            .count(Emit::End);
        swallow(&counts.items());
        flow
    }),
    ("tumbling window, count, 1,000 keys", 5_000_000, |count| {
        windows(count, 1_000)
    }),
    ("tumbling window, count, 10,000 keys", 5_000_000, |count| {
        windows(count, 10_000)
    }),
    ("join with the latest, 1,000 keys", 5_000_000, joined),
];

/// Readings with their times, a thousand for each second, spread over so many keys.
pub(super) fn readings(
    flow: &Flow,
    name: &str,
    count: u64,
    keys: u64,
) -> KeyedStream<u64, Timed<u64>> {
    let source = generator::from_fn(move |n| (n < count).then_some(n));
    flow.source(name, source.batch_size(1024))
        .event_time(|n| *n as i64 * 1_000_000, EventTime::default())
        .key_by(move |n| (n.value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % keys)
}

/// Windows of ten seconds.
pub(super) fn windows(count: u64, keys: u64) -> Flow {
    let flow = Flow::new("windows");
    let tens = Window::tumbling(Duration::from_secs(10));
    let counts = readings(&flow, "readings", count, keys).window("tens", tens);
    swallow(&counts.count().results.items());
    flow
}

/// Two streams of half the readings each, by their latest.
pub(super) fn joined(count: u64) -> Flow {
    let flow = Flow::new("join");
    let left = readings(&flow, "left", count / 2, 1_000);
    let right = readings(&flow, "right", count / 2, 1_000);
    swallow(&left.join("joined", &right, Join::latest()).results.items());
    flow
}

pub(super) fn stateful(count: u64, keys: u64) -> Flow {
    let flow = Flow::new("stateful");
    let sums = numbers(&flow, count, 1, 1024)
        .key_by(move |n| n % keys)
        .stateful(
            "sum",
            |_| 0u64,
            |sum, _, n| {
                *sum += n;
                Some(*sum)
            },
        );
    swallow(&sums.items());
    flow
}
