//! Single steps of Rust flows, measured in items per second, what a second worker brings, and what recovery
//! costs.

mod recovery;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use millstream_flow::join::Join;
use millstream_flow::{
    Emit, EventTime, Flow, FlowError, KeyedStream, Options, Stream, Timed, Window, generator,
};
use millstream_journal::clock::monotonic_ns;
use serde::Serialize;

pub use recovery::Cost;

use super::figures::median_index;

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The median of the runs, in items per second.
    pub items_per_second: f64,
}

/// A part of `millstream bench flow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Single steps.
    Steps,
    /// Two workers beside one.
    Workers,
    /// Recovery beside none.
    Recovery,
    /// How soon a flow goes on.
    Resume,
}

/// What is to be measured.
pub struct Plan {
    /// How many runs; every figure is their median.
    pub runs: u32,
    /// These parts only, or all.
    pub parts: Vec<Part>,
    /// Where state is kept meanwhile.
    pub folder: PathBuf,
}

/// All figures of `millstream bench flow`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Single steps on one worker.
    pub steps: Vec<Figure>,
    /// The rate of two workers over that of one, on a step that costs CPU; the median of the
    /// ratios of pairs of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_workers_ratio: Option<f64>,
    /// What recovery costs.
    pub recovery: Vec<Cost>,
    /// From the start of a flow with a million keys of 100 bytes to its first output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_seconds: Option<f64>,
}

/// The time of one run, in seconds.
fn seconds(flow: &Flow, options: Options) -> Result<f64, FlowError> {
    let start = monotonic_ns();
    flow.run(options)?;
    Ok((monotonic_ns() - start) as f64 / 1e9)
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

/// Makes a flow of so many items.
type Make = fn(u64) -> Flow;
type Case = (&'static str, u64, Make);

const CASES: [Case; 8] = [
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
fn readings(flow: &Flow, name: &str, count: u64, keys: u64) -> KeyedStream<u64, Timed<u64>> {
    let source = generator::from_fn(move |n| (n < count).then_some(n));
    flow.source(name, source.batch_size(1024))
        .event_time(|n| *n as i64 * 1_000_000, EventTime::default())
        .key_by(move |n| (n.value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % keys)
}

/// Windows of ten seconds.
fn windows(count: u64, keys: u64) -> Flow {
    let flow = Flow::new("windows");
    let tens = Window::tumbling(Duration::from_secs(10));
    let counts = readings(&flow, "readings", count, keys).window("tens", tens);
    swallow(&counts.count().results.items());
    flow
}

/// Two streams of half the readings each, by their latest.
fn joined(count: u64) -> Flow {
    let flow = Flow::new("join");
    let left = readings(&flow, "left", count / 2, 1_000);
    let right = readings(&flow, "right", count / 2, 1_000);
    swallow(&left.join("joined", &right, Join::latest()).results.items());
    flow
}

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

/// Measures what is planned, each figure the median of its runs.
///
/// # Errors
/// A flow that fails.
pub fn run(plan: &Plan) -> Result<Figures, FlowError> {
    let wanted = |part| plan.parts.is_empty() || plan.parts.contains(&part);
    let mut figures = Figures::default();
    if wanted(Part::Steps) {
        for (name, count, make) in CASES {
            let flow = make(count);
            let runs = (0..plan.runs).map(|_| seconds(&flow, Options::default()));
            let times: Result<Vec<f64>, _> = runs.collect();
            figures.steps.push(Figure {
                name: name.to_owned(),
                items_per_second: count as f64 / median(&times?),
            });
        }
    }
    if wanted(Part::Workers) {
        figures.two_workers_ratio = Some(two_workers_ratio(plan.runs)?);
    }
    if wanted(Part::Recovery) {
        figures.recovery = recovery::costs(plan.runs, &plan.folder)?;
    }
    if wanted(Part::Resume) {
        figures.resume_seconds = Some(recovery::resume(plan.runs, &plan.folder)?);
    }
    Ok(figures)
}

fn two_workers_ratio(runs: u32) -> Result<f64, FlowError> {
    let flow = Flow::new("costly");
    let sums = numbers(&flow, 2_000_000, 2, 256)
        .map(costly)
        .key_by(|n| n % 64)
        .count(Emit::End);
    swallow(&sums.items());
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let one = seconds(&flow, Options::workers(1))?;
        ratios.push(one / seconds(&flow, Options::workers(2))?);
    }
    Ok(median(&ratios))
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
        if let Some(ratio) = self.two_workers_ratio {
            let what = "two workers against one, costly map";
            writeln!(f, "{what:<36} {ratio:>8.2} x")?;
        }
        for cost in &self.recovery {
            writeln!(
                f,
                "recovery: {:<36} {:>8.2} M items/s without, {:>8.2} with: {:.1} % slower",
                cost.name,
                cost.off / 1e6,
                cost.on / 1e6,
                cost.slower_percent
            )?;
        }
        if let Some(seconds) = self.resume_seconds {
            let what = "resume, 1,000,000 keys of 100 bytes";
            writeln!(f, "{what:<36} {seconds:>8.2} s to the first output")?;
        }
        Ok(())
    }
}
