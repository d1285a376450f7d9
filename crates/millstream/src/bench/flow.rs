//! Single steps of Rust flows, measured in items per second, and what a second worker brings.

use std::hint::black_box;

use millstream_flow::clock::now_ns;
use millstream_flow::{Emit, Flow, FlowError, Options, Stream, generator};
use serde::Serialize;

use super::figures::median_index;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The median of the runs, in items per second.
    pub items_per_second: f64,
}

/// All figures of `millstream bench flow`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Single steps on one worker.
    pub steps: Vec<Figure>,
    /// The rate of two workers over that of one, on a step that costs CPU; the median of the
    /// ratios of pairs of runs.
    pub two_workers_ratio: f64,
}

/// The time of one run, in seconds.
fn seconds(flow: &Flow, workers: usize) -> Result<f64, FlowError> {
    let start = now_ns();
    flow.run(Options::workers(workers))?;
    Ok((now_ns() - start) as f64 / 1e9)
}

fn median(values: &[f64]) -> f64 {
    values[median_index(values)]
}

/// Numbers from several partitions, `count` in all.
fn numbers(flow: &Flow, count: u64, partitions: usize, batch: usize) -> Stream<u64> {
    let each = count / partitions as u64;
    let source = generator::from_fn(move |n| (n < each).then_some(n));
    flow.source("numbers", source.partitions(partitions).batch_size(batch))
}

/// A sink that only looks.
fn swallow<T: Clone + Send + 'static>(stream: &Stream<T>) {
    let none: Stream<u8> = stream.filter_map(|item| {
        black_box(&item);
        None
    });
    none.sink("out", millstream_flow::testing::Collected::new().sink());
}

/// A step that costs about a microsecond of CPU: a hundred rounds of a mixing function.
fn costly(n: u64) -> u64 {
    (0..400u64).fold(n, |x, round| {
        let x = (x ^ round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^ (x >> 29)
    })
}

type Case = (&'static str, u64, fn(u64) -> Flow);

const CASES: [Case; 5] = [
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
];

fn stateful(count: u64, keys: u64) -> Flow {
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

/// Measures everything, each figure the median of `runs` runs.
///
/// # Errors
/// A flow that fails.
pub fn run(runs: u32) -> Result<Figures, FlowError> {
    let mut steps = Vec::new();
    for (name, count, make) in CASES {
        let flow = make(count);
        let times: Result<Vec<f64>, _> = (0..runs).map(|_| seconds(&flow, 1)).collect();
        let items_per_second = count as f64 / median(&times?);
        steps.push(Figure {
            name: name.to_owned(),
            items_per_second,
        });
    }
    let flow = Flow::new("costly");
    let sums = numbers(&flow, 2_000_000, 2, 256)
        .map(costly)
        .key_by(|n| n % 64)
        .count(Emit::End);
    swallow(&sums.items());
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let one = seconds(&flow, 1)?;
        ratios.push(one / seconds(&flow, 2)?);
    }
    Ok(Figures {
        steps,
        two_workers_ratio: median(&ratios),
    })
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for figure in &self.steps {
            writeln!(
                f,
                "{:<36} {:>8.2} M items/s",
                figure.name,
                figure.items_per_second / 1e6
            )?;
        }
        write!(
            f,
            "{:<36} {:>8.2} x",
            "two workers against one, costly map", self.two_workers_ratio
        )
    }
}
