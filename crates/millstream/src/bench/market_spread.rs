//! Market Spread over TCP: generator, senders, flow and receiver, with both kinds of latency.
//!
//! *Internal* latency is the age of a batch, since its frames were cut out of the read buffer, at
//! the end of the state step (and at the flush of the sink, for results). *End-to-end* latency is
//! open loop: message `i` of a stream is due at `t0 + i / rate`, and its latency runs from then
//! until the state step has handled it, however late the sender was. A stall anywhere shows in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Bound, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::clock::now_ns;
use millstream_flow::metrics::latency_histogram;
use millstream_flow::tcp::{self, TcpSource};
use millstream_flow::{Flow, Options, Running};
use serde::Serialize;
use serde_json::Value;

use super::figures::{Latency, cpu_seconds, peak_memory_mib};
use super::peers::Program;
use crate::generate::Kind;
use crate::market_spread::flow::{Handled, Inputs, reject, spread};

/// How long a flow may take to end by itself after the senders were interrupted.
const END_WAIT: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Worker threads of the flow.
    pub workers: usize,
    /// Never sleep.
    pub spin: bool,
    /// Messages a second over both streams; `None` for as many as go through.
    pub rate: Option<f64>,
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
    /// Worker threads.
    pub workers: usize,
    /// Messages a second that were ordered, over both streams.
    pub rate_ordered: Option<f64>,
    /// Messages a second that went through, over both streams.
    pub rate_reached: f64,
    /// Messages handled.
    pub messages: u64,
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
    /// How far the sender fell behind its schedule, at most.
    pub sender_lag_max_us: Option<u64>,
    /// CPU seconds of the flow's process for a million messages.
    pub cpu_s_per_million: f64,
    /// Largest memory of the flow's process.
    pub peak_memory_mib: f64,
}

/// The schedule of the senders, and the latency against it.
struct Probe {
    start_ns: AtomicU64,
    interval_ns: f64,
    /// Messages of the initial quotes, which have no schedule.
    initial: u64,
    handled: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl Probe {
    /// Books a batch at the moment in which it is done: one clock read.
    fn book(&self, batch: &[(crate::market_spread::messages::Symbol, Handled)]) {
        self.handled
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        let start = self.start_ns.load(Ordering::Relaxed);
        if start == 0 {
            return;
        }
        let now = now_ns();
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, handled) in batch {
            let first = if handled.order { 0 } else { self.initial };
            let index = handled.sequence - first;
            let due = start + (index as f64 * self.interval_ns) as u64;
            latency.saturating_record(now.saturating_sub(due).max(1));
        }
    }
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

/// A listener on a free port, and where its address is told.
fn listener(connections: usize) -> (TcpSource, Bound<String>) {
    let (tell, told) = channel();
    let source = tcp::listen("127.0.0.1:0")
        .connections(connections)
        .on_bound(move |address| {
            // Nobody asks any more once the run has failed.
            let _ = tell.send(address.to_string());
        });
    (source, told)
}

fn address(told: &Bound<String>, running: &Running) -> Result<String, String> {
    let limit = Duration::from_secs(10);
    told.recv_timeout(limit)
        .map_err(|_| match running.ended_within(Duration::ZERO) {
            true => "the flow ended before it listened".to_owned(),
            false => "the flow does not listen".to_owned(),
        })
}

/// Runs the benchmark once.
///
/// # Errors
/// A process that could not be started or failed; the flow's failure.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    let program = Program::this().map_err(|error| error.to_string())?;
    let data = Data::generate(plan.seed)?;
    let connections = plan.workers.to_string();
    let receiver = program
        .receiver(&["--connections", &connections, "--expect-length", "55"].map(String::from))?;
    let (quotes, quotes_at) = listener(2);
    let (orders, orders_at) = listener(1);
    let inputs = Inputs::new(quotes, orders);
    let probe = Arc::new(Probe {
        start_ns: AtomicU64::new(0),
        interval_ns: plan.rate.map_or(0.0, |rate| 2e9 / rate),
        initial: Kind::MarketSpreadInitial.default_count(),
        handled: AtomicU64::new(0),
        latency: Mutex::new(latency_histogram()),
    });
    let flow = Flow::new("market-spread");
    let handled = spread(&flow, inputs);
    let book = Arc::clone(&probe);
    let measured = handled.map_batch(move |batch| {
        book.book(&batch);
        batch
    });
    reject(&measured, tcp::send_to(&receiver.address));
    let options = Options {
        workers: plan.workers,
        spin: plan.spin,
        ..Options::default()
    };
    let running = flow.start(options).map_err(|error| error.to_string())?;
    let driven = drive(
        plan, &program, &data, &running, &probe, &quotes_at, &orders_at,
    );
    if driven.is_err() {
        running.stop();
    }
    // A flow that failed says more than the senders that lost their connection.
    let report = running.wait().map_err(|error| error.to_string())?;
    let interrupted = plan.stop.load(Ordering::Relaxed);
    let (sent, cpu) = driven.map_err(|error| match interrupted {
        true => "interrupted before there was anything to measure".to_owned(),
        false => error,
    })?;
    let received = receiver.report()?;
    let step = |name: &str| report.step(name).ok_or_else(|| format!("no step {name}"));
    let state = step("spread")?;
    let end_to_end = plan
        .rate
        .map(|_| Latency::of(&probe.latency.lock().unwrap_or_else(PoisonError::into_inner)));
    let messages = state.items_in.saturating_sub(probe.initial);
    Ok(Outcome {
        workers: plan.workers,
        rate_ordered: plan.rate,
        rate_reached: sent.rate,
        messages,
        results: received["messages"].as_u64().unwrap_or(0),
        skipped: step("quotes")?.skipped + step("orders")?.skipped,
        internal: Latency::of(&state.latency_ns),
        internal_results: Latency::of(&step("results")?.latency_ns),
        end_to_end,
        sender_lag_max_us: sent.lag_max_us,
        cpu_s_per_million: cpu * 1e6 / messages.max(1) as f64,
        peak_memory_mib: peak_memory_mib(),
    })
}

struct Sent {
    rate: f64,
    lag_max_us: Option<u64>,
}

/// Sends the initial quotes to their end, then both streams.
fn drive(
    plan: &Plan,
    program: &Program,
    data: &Data,
    running: &Running,
    probe: &Probe,
    quotes_at: &Bound<String>,
    orders_at: &Bound<String>,
) -> Result<(Sent, f64), String> {
    let quotes_at = address(quotes_at, running)?;
    let orders_at = address(orders_at, running)?;
    let text = |path: &Path| path.display().to_string();
    let initial = text(&data.path(Kind::MarketSpreadInitial));
    let send_initial = ["send", &initial, "--to", &quotes_at, "--json"].map(String::from);
    program.run_json(&send_initial, &plan.stop)?;
    while probe.handled.load(Ordering::Relaxed) < probe.initial {
        if plan.stop.load(Ordering::Relaxed) {
            running.stop();
        }
        if running.ended_within(Duration::from_millis(1)) {
            return Err("the flow ended before it had handled the initial quotes".to_owned());
        }
    }
    let nbbo = format!("{}@{quotes_at}", text(&data.path(Kind::MarketSpreadNbbo)));
    let orders = format!("{}@{orders_at}", text(&data.path(Kind::MarketSpreadOrders)));
    let mut args: Vec<String> = [
        "send", "--stream", &nbbo, "--stream", &orders, "--repeat", "--json",
    ]
    .map(String::from)
    .into();
    args.extend(["--seconds".to_owned(), plan.seconds.to_string()]);
    if let Some(rate) = plan.rate {
        // Time for the sender to start, read its files and connect.
        let start = now_ns() + 700_000_000;
        probe.start_ns.store(start, Ordering::Relaxed);
        args.extend(["--rate".to_owned(), (rate / 2.0).to_string()]);
        args.extend(["--start-at".to_owned(), start.to_string()]);
    }
    let cpu = cpu_seconds();
    let sent = program.run_json(&args, &plan.stop)?;
    while !running.ended_within(END_WAIT) {
        // A sender that was interrupted before it connected leaves the flow waiting for it.
        if plan.stop.load(Ordering::Relaxed) {
            running.stop();
        }
    }
    let cpu = cpu_seconds() - cpu;
    Ok((sum(&sent), cpu))
}

/// Both streams of the sender's report as one.
fn sum(report: &Value) -> Sent {
    let streams = report["streams"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    Sent {
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
        writeln!(
            f,
            "Market Spread, {} worker(s), {ordered}: {:.3} M msg/s, {} messages, {} results, {} skipped",
            self.workers,
            self.rate_reached / 1e6,
            self.messages,
            self.results,
            self.skipped
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
