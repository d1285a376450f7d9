//! Market Spread over TCP: generator, senders, flow and receiver, with both kinds of latency.
//!
//! *Internal* latency is the age of a batch, since its frames were cut out of the read buffer, at
//! the end of the state step (and at the flush of the sink, for results). *End-to-end* latency is
//! open loop: message `i` of a stream is due at `t0 + i / rate`, and its latency runs from then
//! until the state step has handled it, however late the sender was. A stall anywhere shows in it. A message that was due
//! and never sent is in it too, with its lateness at the end of the run.
//!
//! A run whose counts disagree has no figures to stand for: see [`Counts`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millstream_journal::clock::monotonic_ns;
use serde::Serialize;
use serde_json::Value;

use super::figures::Latency;
use super::peers::Program;
use crate::data::Kind;

mod counts;
mod python;
mod rust;

pub use counts::Counts;

/// Time for the sender to start, read its files and connect.
const SENDER_START_NS: u64 = 700_000_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Worker threads of the flow.
    pub workers: usize,
    /// Measure the flow of Python objects, in a process of its own.
    pub python: bool,
    /// Never sleep.
    pub spin: bool,
    /// Messages a second over both streams; `None` for as many as go through.
    pub rate: Option<f64>,
    /// Record the input before it is processed, and commit each second, in this directory; and whether that is to survive a
    /// loss of power.
    pub durable: Option<(PathBuf, bool)>,
    /// Length of the run.
    pub seconds: f64,
    /// The seed of the data.
    pub seed: u64,
    /// Raised to end the run early: what has been sent is handled and reported.
    pub stop: Arc<AtomicBool>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// `rust` or `python`.
    pub language: &'static str,
    /// Worker threads.
    pub workers: usize,
    /// For a run with durable input and recovery, `always` or `never`: whether what was read and committed survives a loss of power.
    pub durable_sync: Option<&'static str>,
    /// Messages a second that were ordered, over both streams.
    pub rate_ordered: Option<f64>,
    /// Messages a second that went through, over both streams.
    pub rate_reached: f64,
    /// Messages handled.
    pub messages: u64,
    /// What was ordered, sent, handled and received.
    pub counts: Counts,
    /// Results that the receiver got.
    pub results: u64,
    /// Poison messages.
    pub skipped: u64,
    /// From the cut of the frame to the end of the state step.
    pub internal: Latency,
    /// From the cut of the frame to the hand-over to the socket, for results.
    pub internal_results: Latency,
    /// From the due time to the end of the state step; only with a rate.
    pub end_to_end: Option<Latency>,
    /// How far the sender fell behind its schedule, at most; messages that it never sent count.
    pub sender_lag_max_us: Option<u64>,
    /// CPU seconds of the flow's process for a million messages.
    pub cpu_s_per_million: f64,
    /// Largest memory of the flow's process.
    pub peak_memory_mib: f64,
}

/// The generated files of a run.
struct Data {
    dir: PathBuf,
}

impl Data {
    fn generate(seed: u64) -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("millstream-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let data = Data { dir };
        for kind in [
            Kind::MarketSpreadInitial,
            Kind::MarketSpreadNbbo,
            Kind::MarketSpreadOrders,
        ] {
            let path = data.path(kind);
            let write = || -> std::io::Result<()> {
                let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
                kind.write(kind.default_count(), seed, &kind.framing(), &mut file)?;
                std::io::Write::flush(&mut file)
            };
            write().map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(data)
    }
    /// Where the receiver writes the results.
    fn results(&self) -> PathBuf {
        self.dir.join("results.msg")
    }
    fn path(&self, kind: Kind) -> PathBuf {
        self.dir.join(match kind {
            Kind::MarketSpreadInitial => "initial.msg",
            Kind::MarketSpreadNbbo => "nbbo.msg",
            _ => "orders.msg",
        })
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // Left-over temporary files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What the sender reports, of both streams.
#[derive(Default)]
struct Sent {
    rate: f64,
    lag_max_us: Option<u64>,
    quotes: counts::Stream,
    orders: counts::Stream,
    interrupted: bool,
    end_ns: u64,
}

/// Into about so many groups messages that were not sent are divided, to be booked.
const UNSENT_GROUPS: u64 = 10_000;

impl Sent {
    /// Tells of each group of messages that were due and never sent: its first message and how many they are.
    fn unsent(&self, mut tell: impl FnMut(u64, u64)) {
        for stream in [self.quotes, self.orders] {
            let group = (stream.ordered.saturating_sub(stream.sent) / UNSENT_GROUPS).max(1);
            let mut index = stream.sent;
            while index < stream.ordered {
                let count = group.min(stream.ordered - index);
                tell(index, count);
                index += count;
            }
        }
    }
}

/// A flow that is measured, wherever it runs.
trait Subject {
    /// Where it takes quotes and orders.
    fn addresses(&mut self) -> Result<(String, String), String>;
    /// Waits until the initial quotes are handled.
    fn await_initial(&mut self) -> Result<(), String>;
    /// Tells when the schedule starts, 0 for none, and the time between two messages of a stream.
    fn schedule(&mut self, start_ns: u64, interval_ns: f64) -> Result<(), String>;
    /// Waits until all that was sent is handled.
    fn await_end(&mut self, sent: &Sent) -> Result<(), String>;
}

/// Sends the initial quotes to their end, then both streams.
fn drive(
    plan: &Plan,
    program: &Program,
    data: &Data,
    subject: &mut impl Subject,
) -> Result<Sent, String> {
    let (quotes_at, orders_at) = subject.addresses()?;
    let text = |path: &Path| path.display().to_string();
    let initial = text(&data.path(Kind::MarketSpreadInitial));
    let send_initial = ["send", &initial, "--to", &quotes_at, "--json"].map(String::from);
    program.run_json(&send_initial, &plan.stop)?;
    subject.await_initial()?;
    let nbbo = format!("{}@{quotes_at}", text(&data.path(Kind::MarketSpreadNbbo)));
    let orders = format!("{}@{orders_at}", text(&data.path(Kind::MarketSpreadOrders)));
    let mut args: Vec<String> = [
        "send", "--stream", &nbbo, "--stream", &orders, "--repeat", "--json",
    ]
    .map(String::from)
    .into();
    args.extend(["--seconds".to_owned(), plan.seconds.to_string()]);
    match plan.rate {
        Some(rate) => {
            let start = monotonic_ns() + SENDER_START_NS;
            subject.schedule(start, 2e9 / rate)?;
            args.extend(["--rate".to_owned(), (rate / 2.0).to_string()]);
            args.extend(["--start-at".to_owned(), start.to_string()]);
        }
        None => subject.schedule(0, 0.0)?,
    }
    let sent = sum(&program.run_json(&args, &plan.stop)?);
    subject.await_end(&sent)?;
    Ok(sent)
}

/// Runs the benchmark once.
///
/// # Errors
/// A process that could not be started or failed; the flow's failure.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let program = Program::this().map_err(|error| error.to_string())?;
    let data = Data::generate(plan.seed)?;
    let connections = plan.workers.to_string();
    let results = data.results().display().to_string();
    let receiver = program.receiver(
        &[
            "--connections",
            &connections,
            "--expect-length",
            "55",
            "--out",
            &results,
        ]
        .map(String::from),
    )?;
    let (mut outcome, sent) = match plan.python {
        true => python::run(plan, &program, &data, &receiver.address)?,
        false => rust::run(plan, &program, &data, &receiver.address)?,
    };
    outcome.results = receiver.report()?["messages"].as_u64().unwrap_or(0);
    outcome.counts = counts::judge(
        plan.seed,
        (sent.quotes, sent.orders),
        outcome.messages,
        &data.results(),
        sent.interrupted,
    )?;
    Ok(outcome)
}

/// Both streams of the sender's report as one.
fn sum(report: &Value) -> Sent {
    let streams = report["streams"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let stream = |index: usize| streams.get(index).map(counts::Stream::of);
    Sent {
        quotes: stream(0).unwrap_or_default(),
        orders: stream(1).unwrap_or_default(),
        interrupted: report["interrupted"].as_bool().unwrap_or(false),
        end_ns: report["end_ns"].as_u64().unwrap_or(0),
        rate: streams
            .iter()
            .filter_map(|stream| stream["messages_per_second"].as_f64())
            .sum(),
        lag_max_us: streams
            .iter()
            .filter_map(|stream| stream["lag_us"]["max"].as_u64())
            .max(),
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ordered = self
            .rate_ordered
            .map_or("as fast as possible".to_owned(), |rate| {
                format!("{:.3} M msg/s ordered", rate / 1e6)
            });
        let durable = self.durable_sync.map_or(String::new(), |sync| {
            format!("durable input with sync={sync}, ")
        });
        writeln!(
            f,
            "Market Spread in {}, {} worker(s), {durable}{ordered}: {:.3} M msg/s, {} messages, {} results, {} skipped",
            self.language,
            self.workers,
            self.rate_reached / 1e6,
            self.messages,
            self.results,
            self.skipped
        )?;
        let counts = &self.counts;
        writeln!(
            f,
            "ordered {}, sent {}, handled {}; results expected {}, received {}, {} of them wrong",
            counts.ordered,
            counts.sent,
            counts.handled,
            counts.expected_results,
            counts.results,
            counts.wrong_results.len()
        )?;
        writeln!(f, "{}", Latency::heading())?;
        writeln!(f, "{}", self.internal.row("internal, all messages"))?;
        writeln!(
            f,
            "{}",
            self.internal_results.row("internal, results to the socket")
        )?;
        if let Some(end_to_end) = &self.end_to_end {
            writeln!(f, "{}", end_to_end.row("end to end, open loop"))?;
        }
        if let Some(lag) = self.sender_lag_max_us {
            writeln!(f, "the sender was at most {lag} us behind its schedule")?;
        }
        write!(
            f,
            "CPU {:.3} s per million messages, peak memory {:.1} MiB",
            self.cpu_s_per_million, self.peak_memory_mib
        )
    }
}
