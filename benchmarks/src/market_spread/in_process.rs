//! Market Spread in Rust, measured in this process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Bound, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::SourceExt;
use millstream_flow::error::chain;
use millstream_flow::metrics::latency_histogram;
use millstream_flow::tcp::{self, TcpSource};
use millstream_flow::{Flow, FlowError, Options, Recovery, Running};
use millstream_journal::clock::monotonic_ns;

use millstream_cli::data::Kind;

use super::counts::Counts;
use super::example::market::Market;
use super::example::messages::Symbol;
use super::files::InputFiles;
use super::flow::{Handled, reject, spread};
use super::plan::Plan;
use super::report::Report;
use super::sent::Sent;
use crate::figures::{Latency, cpu_seconds, peak_memory_mib};
use crate::program::Program;

/// How long a flow may take to end by itself after the senders were interrupted.
const END_WAIT: Duration = Duration::from_secs(1);

/// Time for the sender to start, read its files and connect.
const SENDER_START_NS: u64 = 700_000_000;

/// Everything around the flow of a run: the plan, the program that sends, the input, the receiver of results.
pub struct Rig<'a> {
    /// What is measured.
    pub plan: &'a Plan,
    /// The address of the receiver of results.
    pub results_at: &'a str,
    pub(super) program: &'a Program,
    pub(super) files: &'a InputFiles,
}

/// The schedule of the senders, and the latency against it.
struct Probe {
    start_ns: AtomicU64,
    /// The bits of an f64.
    interval_ns: AtomicU64,
    /// Messages of the initial quotes, which have no schedule.
    initial: u64,
    handled: AtomicU64,
    latency: Mutex<Histogram<u64>>,
}

impl Probe {
    /// Books a batch at the moment in which it is done: one clock read.
    fn book(&self, batch: &[(Symbol, Handled)]) {
        self.handled
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        let start = self.start_ns.load(Ordering::Relaxed);
        if start == 0 {
            return;
        }
        let interval_ns = f64::from_bits(self.interval_ns.load(Ordering::Relaxed));
        let now = monotonic_ns();
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, handled) in batch {
            let first = if handled.order { 0 } else { self.initial };
            let index = handled.sequence - first;
            let due = start + (index as f64 * interval_ns) as u64;
            latency.saturating_record(now.saturating_sub(due).max(1));
        }
    }
}

impl Probe {
    /// Books what was due and never sent, as late as it was at the end.
    fn book_unsent(&self, sent: &Sent) {
        let start = self.start_ns.load(Ordering::Relaxed);
        if start == 0 {
            return;
        }
        let interval_ns = f64::from_bits(self.interval_ns.load(Ordering::Relaxed));
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        sent.unsent(|index, count| {
            let due = start + (index as f64 * interval_ns) as u64;
            latency.saturating_record_n(sent.end_ns.saturating_sub(due).max(1), count);
        });
    }
}

/// A listener on a free port, and the channel of its address.
fn listener(connections: usize) -> (TcpSource, Bound<String>) {
    let (sender, bound) = channel();
    let source = tcp::listen("127.0.0.1:0")
        .connections(connections)
        .on_bound(move |address| {
            // The receiver is gone after the run has failed.
            let _ = sender.send(address.to_string());
        });
    (source, bound)
}

fn address(bound: &Bound<String>, running: &Running) -> Result<String, String> {
    let limit = Duration::from_secs(10);
    bound.recv_timeout(limit).map_err(|_| {
        if running.ended_within(Duration::ZERO) {
            "the flow ended before it listened".to_owned()
        } else {
            "the flow does not listen".to_owned()
        }
    })
}

/// The running flow and what is known of it.
struct InProcess<'a> {
    plan: &'a Plan,
    running: Running,
    probe: Arc<Probe>,
    quotes_at: Bound<String>,
    orders_at: Bound<String>,
    cpu: f64,
}

impl InProcess<'_> {
    fn addresses(&mut self) -> Result<(String, String), String> {
        let quotes_at = address(&self.quotes_at, &self.running)?;
        Ok((quotes_at, address(&self.orders_at, &self.running)?))
    }
    fn await_initial(&mut self) -> Result<(), String> {
        while self.probe.handled.load(Ordering::Relaxed) < self.probe.initial {
            if self.plan.stop.load(Ordering::Relaxed) {
                self.running.stop();
            }
            if self.running.ended_within(Duration::from_millis(1)) {
                return Err("the flow ended before it had handled the initial quotes".to_owned());
            }
        }
        Ok(())
    }
    fn schedule(&mut self, start_ns: u64, interval_ns: f64) -> Result<(), String> {
        let interval = interval_ns.to_bits();
        self.probe.interval_ns.store(interval, Ordering::Relaxed);
        self.probe.start_ns.store(start_ns, Ordering::Relaxed);
        self.cpu = cpu_seconds();
        Ok(())
    }
    fn await_end(&mut self, sent: &Sent) -> Result<(), String> {
        while !self.running.ended_within(END_WAIT) {
            // A sender that was interrupted before it connected leaves the flow waiting for it.
            if self.plan.stop.load(Ordering::Relaxed) {
                self.running.stop();
            }
        }
        self.cpu = cpu_seconds() - self.cpu;
        self.probe.book_unsent(sent);
        Ok(())
    }
}

impl Rig<'_> {
    /// Sends the initial quotes to their end, then both streams.
    fn drive(&self, subject: &mut InProcess<'_>) -> Result<Sent, String> {
        let Rig {
            plan,
            program,
            files,
            ..
        } = self;
        let (quotes_at, orders_at) = subject.addresses()?;
        let text = |path: &Path| path.display().to_string();
        let initial = text(&files.path(Kind::MarketSpreadInitial));
        let send_initial = ["send", &initial, "--to", &quotes_at, "--json"].map(String::from);
        program.run_json(&send_initial, &plan.stop)?;
        subject.await_initial()?;
        let nbbo = format!("{}@{quotes_at}", text(&files.path(Kind::MarketSpreadNbbo)));
        let orders = format!(
            "{}@{orders_at}",
            text(&files.path(Kind::MarketSpreadOrders))
        );
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
        let sent = Sent::of(&program.run_json(&args, &plan.stop)?);
        subject.await_end(&sent)?;
        Ok(sent)
    }
}

/// The flow, which books in the probe what it has handled.
fn describe(
    plan: &Plan,
    (quotes, orders): (TcpSource, TcpSource),
    probe: &Arc<Probe>,
    results_at: &str,
) -> Flow {
    let flow = Flow::new("market-spread");
    flow.saves::<Market>();
    let handled = match plan.durable {
        Some(_) => spread(&flow, quotes.durable(), orders.durable()),
        None => spread(&flow, quotes, orders),
    };
    let book = Arc::clone(probe);
    let measured = handled.map_batch(move |batch| {
        book.book(&batch);
        batch
    });
    reject(&measured, tcp::send_to(results_at));
    flow
}

/// A state directory for the time of a run, if it is to have one.
struct State(Option<(PathBuf, bool)>);

impl State {
    fn new(plan: &Plan) -> Result<Self, String> {
        let Some((dir, sync)) = &plan.durable else {
            return Ok(State(None));
        };
        let dir = dir.join(format!("millstream-bench-state-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(State(Some((dir, *sync))))
    }
    fn recovery(&self) -> Option<Recovery> {
        let (dir, sync) = self.0.as_ref()?;
        Some(Recovery::new(dir).sync(*sync))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some((dir, _)) = &self.0 {
            // Left-over temporary files are no reason to fail.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn with_causes(error: FlowError) -> String {
    chain(&error).to_string()
}

/// Runs the flow once; the results that the receiver got are added by the rig.
///
/// # Errors
/// The flow's failure, or that of a sender.
pub fn run(rig: &Rig<'_>) -> Result<(Report, Sent), String> {
    let plan = rig.plan;
    let (quotes, quotes_at) = listener(2);
    let (orders, orders_at) = listener(1);
    let probe = Arc::new(Probe {
        start_ns: AtomicU64::new(0),
        interval_ns: AtomicU64::new(0),
        initial: Kind::MarketSpreadInitial.default_count(),
        handled: AtomicU64::new(0),
        latency: Mutex::new(latency_histogram()),
    });
    let flow = describe(plan, (quotes, orders), &probe, rig.results_at);
    let state = State::new(plan)?;
    let options = Options {
        workers: plan.workers,
        spin: plan.spin,
        recovery: state.recovery(),
        ..Options::default()
    };
    let observer = plan.observer.as_deref();
    let options = observer.map_or(options.clone(), |observer| observer.options(options));
    let running = flow.start(options).map_err(with_causes)?;
    if let Some(observer) = observer {
        observer.watch(flow.describe(), running.watch());
    }
    let probe_of_run = Arc::clone(&probe);
    let mut subject = InProcess {
        plan,
        running,
        probe,
        quotes_at,
        orders_at,
        cpu: 0.0,
    };
    let driven = rig.drive(&mut subject);
    if driven.is_err() {
        subject.running.stop();
    }
    let cpu = subject.cpu;
    let probe = probe_of_run;
    // A flow that failed says more than the senders that lost their connection.
    let report = subject.running.wait().map_err(with_causes)?;
    let sent = driven?;
    let step = |name: &str| report.step(name).ok_or_else(|| format!("no step {name}"));
    let state = step("spread")?;
    let end_to_end = plan
        .rate
        .map(|_| Latency::of(&probe.latency.lock().unwrap_or_else(PoisonError::into_inner)));
    let messages = state.items_in.saturating_sub(probe.initial);
    let measured = Report {
        language: "Rust".to_owned(),
        workers: plan.workers,
        durable_sync: plan.durable.as_ref().map(|(_, sync)| {
            let word = if *sync { "always" } else { "never" };
            word.to_owned()
        }),
        rate_ordered: plan.rate,
        rate_reached: sent.rate,
        messages,
        counts: Counts::default(),
        results: 0,
        skipped: step("quotes")?.skipped + step("orders")?.skipped,
        internal: Latency::of(&state.latency_ns),
        internal_results: Latency::of(&step("results")?.latency_ns),
        end_to_end,
        sender_lag_max_us: sent.lag_max_us,
        cpu_s_per_million: cpu * 1e6 / messages.max(1) as f64,
        peak_memory_mib: peak_memory_mib(),
    };
    Ok((measured, sent))
}
