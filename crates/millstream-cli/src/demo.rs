//! `millstream bench` and `millstream demo`: the reference application, measured.

use std::path::PathBuf;

use clap::Subcommand;
use millstream_queue::address::Address;
use serde::Serialize;

use super::stop::Stop;
use super::{Failure, report};
use crate::bench::figures::median_index;
use crate::bench::market_spread::{self, Outcome, Plan};
use crate::bench::{embedded, flow, idle, journal, queue, service};

/// The options of `millstream bench`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand, Debug)]
enum Name {
    /// Two TCP streams, state by symbol, results over TCP; internal and end-to-end latency.
    MarketSpread(MarketSpread),
    /// Journals: rate, latency, durability, recovery, beside what one would use instead.
    Journal(JournalArgs),
    /// Another process of `bench journal`.
    #[command(hide = true, subcommand)]
    JournalPeer(journal::Role),
    /// Single steps of Rust flows, what a second worker brings, and what an idle flow costs.
    Flow(FlowArgs),
    /// Typed calls over a journal, from one process to another.
    Service(ServiceArgs),
    /// The other process of `bench service`.
    #[command(hide = true)]
    ServiceConsumer(ServiceConsumer),
    /// The queue server: sets and gets over sockets, memory with a backlog, restart.
    Queue(QueueArgs),
}

/// The options of `millstream bench queue`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream bench queue --runs 3 --seconds 1\n  millstream bench queue --against redis --only \"100 conn\""
)]
struct QueueArgs {
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds of each measurement of sustained load.
    #[arg(long, value_name = "T", default_value_t = 2.0)]
    seconds: f64,
    /// Where queues are kept meanwhile: the disk that --sync always is measured on.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Queues in process instead: threads that put and take, and a flow from queue to queue.
    #[arg(long, conflicts_with = "server")]
    in_process: bool,
    /// Only loads with this text in their name, such as "100 conn".
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Measure a server that runs already, by another maker perhaps: only what needs no restart.
    #[arg(long, value_name = "ADDRESS", value_parser = super::address::parse_server)]
    server: Option<Address>,
    /// Take turns with another server, which must be installed.
    #[arg(long, value_name = "SERVER", conflicts_with = "server")]
    against: Option<Against>,
    /// Over Unix sockets instead of loopback, for all servers.
    #[arg(long, conflicts_with_all = ["server", "in_process"])]
    unix: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// A server to compare with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Against {
    /// Its list type, with an append-only file: everysec beside our never, always beside always.
    Redis,
}

/// A system of typed calls to compare with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum System {
    /// Chronicle Queue from Maven Central: self-describing, and with an order written by hand.
    Chronicle,
}

/// The options of `millstream bench service`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream bench service --rate 100000 --folder /dev/shm\n  millstream bench service --against chronicle"
)]
struct ServiceArgs {
    /// Calls per second; 0 for as many as go.
    #[arg(long, value_name = "N", default_value_t = 10_000.0)]
    rate: f64,
    /// Seconds that are measured.
    #[arg(long, value_name = "T", default_value_t = 20.0)]
    seconds: f64,
    /// Seconds before that.
    #[arg(long, value_name = "T", default_value_t = 5.0)]
    warm_up: f64,
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Call a method with one integer instead of an order with 28 fields.
    #[arg(long)]
    ticks: bool,
    /// Publisher and consumer in Python; needs the Python package.
    #[arg(long, conflicts_with = "ticks")]
    python: bool,
    /// Take turns with another system, in Java; needs Maven and a JDK.
    #[arg(long, value_name = "SYSTEM", conflicts_with_all = ["ticks", "python"])]
    against: Option<System>,
    /// Where the journal is made, and removed again.
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// The options of the consumer.
#[derive(clap::Args, Debug)]
struct ServiceConsumer {
    folder: PathBuf,
    measured_from: u64,
}

/// The options of `millstream bench flow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream bench flow --only recovery --only resume")]
struct FlowArgs {
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure this part only, without what an idle flow costs; may be given several times.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<flow::Part>,
    /// Where state is kept, and removed again [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// The options of `millstream bench journal`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream bench journal --only speed --only processes --json")]
struct JournalArgs {
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure this part only; may be given several times.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<journal::Part>,
    /// Where journals are made, and removed again [default: the system's folder for temporary files].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The size of the journal that is reopened, in GiB.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    large_gib: u64,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

impl FlowArgs {
    fn run(self) -> Result<(), Failure> {
        let plan = flow::Plan {
            runs: self.runs,
            folder: self.folder.unwrap_or_else(std::env::temp_dir),
            parts: self.only,
        };
        let steps = flow::run(&plan).map_err(Failure::failed)?;
        let idle = match plan.parts.is_empty() {
            true => Some(idle::run(idle::WATCHED, idle::SAMPLES).map_err(Failure::failed)?),
            false => None,
        };
        let of_idle = idle.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format!("{steps}{}", of_idle.trim_end());
        report::print(&FlowFigures { steps, idle }, text.trim_end(), self.json)
    }
}

impl JournalArgs {
    fn run(self) -> Result<(), Failure> {
        let plan = journal::Plan {
            runs: self.runs,
            parts: self.only,
            folder: self.folder.unwrap_or_else(std::env::temp_dir),
            large_gib: self.large_gib,
            stop: Stop::on_signals()?.flag(),
            peers: Vec::new(),
        };
        let figures = journal::run(&plan).map_err(Failure::failed)?;
        report::print(&figures, &figures.to_string(), self.json)
    }
}

/// The options of `millstream bench market-spread`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream bench market-spread --rate 3000000 --seconds 10 --spin"
)]
struct MarketSpread {
    /// Measure the flow of Python objects, on one worker; needs the Python package.
    #[arg(long, conflicts_with = "workers")]
    python: bool,
    /// Worker threads of the flow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Messages per second over both streams; 0 for as many as go through.
    #[arg(long, value_name = "N", default_value_t = 1_000_000.0)]
    rate: f64,
    /// Seconds of each run.
    #[arg(long, value_name = "T", default_value_t = 10.0)]
    seconds: f64,
    /// How many runs; the one with the median p50 is reported whole.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The workers never sleep.
    #[arg(long)]
    spin: bool,
    /// Record the input before it is processed, and commit the state each second.
    #[arg(long, conflicts_with = "python")]
    durable: bool,
    /// With --durable: whether what is recorded and committed survives a loss of power.
    #[arg(long, value_enum, default_value_t = Safety::Never, requires = "durable")]
    sync: Safety,
    /// With --durable: where that is kept meanwhile.
    #[arg(long, value_name = "DIR", default_value = ".", requires = "durable")]
    folder: PathBuf,
    /// The seed of the data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// When what was recorded survives a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Safety {
    /// Some time later.
    Never,
    /// Before it is processed.
    Always,
}

/// The options of `millstream demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream demo")]
pub(super) struct DemoArgs {
    /// Messages per second over both streams.
    #[arg(long, value_name = "N", default_value_t = 200_000.0)]
    rate: f64,
    /// Seconds of the run.
    #[arg(long, value_name = "T", default_value_t = 5.0)]
    seconds: f64,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// All figures of `millstream bench flow`.
#[derive(Serialize)]
struct FlowFigures {
    #[serde(flatten)]
    steps: flow::Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<idle::Idle>,
}

/// All runs, and the median one.
#[derive(Serialize)]
struct Runs {
    median: Outcome,
    runs: Vec<Outcome>,
}

fn check(rate: f64, seconds: f64) -> Result<(), Failure> {
    if !(rate >= 0.0 && rate.is_finite()) {
        return Err(Failure::usage(format!(
            "--rate {rate}: a number of messages, or 0"
        )));
    }
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(Failure::usage(format!(
            "--seconds {seconds}: more than 0, at most 3600"
        )));
    }
    Ok(())
}

fn service(args: &ServiceArgs) -> Result<(), Failure> {
    check(args.rate, args.seconds)?;
    check(0.0, args.warm_up)?;
    let stop = Stop::on_signals()?;
    let plan = service::Plan {
        what: if args.ticks {
            service::What::Ticks
        } else {
            service::What::Orders
        },
        python: args.python,
        chronicle: args.against == Some(System::Chronicle),
        rate: args.rate,
        seconds: args.seconds,
        warm_up: args.warm_up,
        folder: args.folder.clone(),
    };
    match service::run(&plan, args.runs, &stop.flag()) {
        Ok(Some(figures)) => report::print(&figures, &figures.to_string(), args.json),
        Ok(None) => nothing_measured("bench"),
        Err(_) if stop.requested() => nothing_measured("bench"),
        Err(error) => Err(Failure::failed(error)),
    }
}

fn service_consumer(args: &ServiceConsumer) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let consumed = service::consume(&args.folder, args.measured_from, &stop.flag());
    report::print(&consumed.map_err(Failure::failed)?, "", true)
}

/// Run a benchmark.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    match args.name {
        Name::Journal(args) => args.run(),
        Name::JournalPeer(role) => journal::play(&role).map_err(Failure::failed),
        Name::MarketSpread(args) => market_spread(&args),
        Name::Service(args) => service(&args),
        Name::ServiceConsumer(args) => service_consumer(&args),
        Name::Flow(args) => args.run(),
        Name::Queue(args) if args.in_process => {
            let plan = embedded::Plan {
                runs: args.runs,
                seconds: args.seconds,
                dir: args.dir,
                only: args.only,
            };
            let report = embedded::measure(&plan).map_err(Failure::failed)?;
            report::print(&report, &report.to_string(), args.json)
        }
        Name::Queue(args) => {
            let plan = queue::Plan {
                runs: args.runs,
                seconds: args.seconds,
                dir: args.dir,
                only: args.only,
                server: args.server,
                redis: args.against == Some(Against::Redis),
                unix: args.unix,
            };
            let report = queue::measure(&plan).map_err(Failure::failed)?;
            report::print(&report, &report.to_string(), args.json)
        }
    }
}

fn market_spread(args: &MarketSpread) -> Result<(), Failure> {
    check(args.rate, args.seconds)?;
    let stop = Stop::on_signals()?;
    let plan = Plan {
        workers: args.workers,
        python: args.python,
        spin: args.spin,
        durable: args
            .durable
            .then(|| (args.folder.clone(), args.sync == Safety::Always)),
        rate: (args.rate > 0.0).then_some(args.rate),
        seconds: args.seconds,
        seed: args.seed,
        stop: stop.flag(),
    };
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        runs.extend(measured(&plan, &stop)?);
        if stop.requested() {
            break;
        }
    }
    if runs.is_empty() {
        return nothing_measured("bench");
    }
    let p50s: Vec<f64> = runs.iter().map(|run| run.internal.p50_us).collect();
    let median = runs[median_index(&p50s)].clone();
    let text = median.to_string();
    let disagreement = runs.iter().find_map(|run| run.counts.disagreement());
    report::print(&Runs { median, runs }, &text, args.json)?;
    agreed(disagreement)
}

/// A run whose counts disagree is a failure, whatever its figures say.
fn agreed(disagreement: Option<String>) -> Result<(), Failure> {
    disagreement.map_or(Ok(()), |what| Err(Failure::failed(what)))
}

/// One run; nothing when a signal ended it before it could give figures.
fn measured(plan: &Plan, stop: &Stop) -> Result<Option<Outcome>, Failure> {
    match market_spread::run(plan) {
        Ok(outcome) => Ok(Some(outcome)),
        // Processes that are interrupted while they start miss each other in many ways.
        Err(_) if stop.requested() => Ok(None),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// What a verb says and gives that was interrupted too early: to stop is no failure.
fn nothing_measured(verb: &str) -> Result<(), Failure> {
    eprintln!("millstream {verb}: interrupted before there was anything to measure");
    Ok(())
}

/// Run Market Spread, generator to report.
pub(super) fn demo(args: &DemoArgs) -> Result<(), Failure> {
    check(args.rate, args.seconds)?;
    let stop = Stop::on_signals()?;
    let plan = Plan {
        workers: 1,
        python: false,
        spin: false,
        durable: None,
        rate: Some(args.rate.max(1.0)),
        seconds: args.seconds,
        seed: 1,
        stop: stop.flag(),
    };
    if !args.json {
        eprintln!(
            "Quotes and orders go over TCP into a flow that keeps the last quote of each of 350 symbols; orders \
             for symbols with a wide spread are rejected, to a receiver. {} messages a second for {} s.",
            args.rate, args.seconds
        );
    }
    match measured(&plan, &stop)? {
        Some(outcome) => {
            report::print(&outcome, &outcome.to_string(), args.json)?;
            agreed(outcome.counts.disagreement())
        }
        None => nothing_measured("demo"),
    }
}
