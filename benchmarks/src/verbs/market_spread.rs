//! `millstream-bench market-spread`.

mod watched;

use std::path::PathBuf;
use std::sync::Arc;

use millstream_cli::failure::Failure;
use millstream_cli::report;
use millstream_cli::stop::Stop;
use serde::Serialize;

use super::{check, nothing_measured};
use crate::figures::median_index;
use crate::market_spread::{self, Measure, Plan, Report, python, run_until};
use crate::programs;

/// The options of `millstream-bench market-spread`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench market-spread --rate 3000000 --seconds 10 --spin"
)]
pub struct Args {
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
    /// How many runs; the one with the median p50 is reported.
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
    #[arg(long, default_value_t = 1, conflicts_with = "python")]
    seed: u64,
    /// Show the flow on a page at this address, to measure what that costs.
    #[arg(long, value_name = "ADDR", conflicts_with = "python")]
    http: Option<String>,
    /// What a page costs that is open: this many pairs of runs in turns, without and with a page that is followed and
    /// whose metrics are read each second.
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["python", "http", "runs"], value_parser = clap::value_parser!(u32).range(1..=100))]
    watched: Option<u32>,
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

/// All runs, and the median one.
#[derive(Serialize)]
struct Runs {
    median: Report,
    runs: Vec<Report>,
}

/// Measures.
pub fn run(args: &Args) -> Result<(), Failure> {
    check(args.rate, args.seconds)?;
    let stop = Stop::on_signals()?;
    let bind = |address: &String| millstream_observe::http(address).bind().map(Arc::new);
    let observer = args.http.as_ref().map(bind).transpose();
    let plan = Plan {
        workers: args.workers,
        spin: args.spin,
        durable: args
            .durable
            .then(|| (args.folder.clone(), args.sync == Safety::Always)),
        rate: (args.rate > 0.0).then_some(args.rate),
        seconds: args.seconds,
        seed: args.seed,
        observer: observer.map_err(Failure::failed)?,
        stop: stop.flag(),
    };
    let measure: Measure = if args.python {
        python::run
    } else {
        market_spread::run
    };
    let program = programs::millstream().map_err(Failure::failed)?;
    if let Some(count) = args.watched {
        let pairs = watched::pairs(&stop, &plan, &program, count)?;
        if pairs.rates.is_empty() {
            return nothing_measured("market-spread");
        }
        return report::print(&pairs, &pairs.to_string(), args.json);
    }
    let mut runs = Vec::new();
    for _ in 0..args.runs {
        runs.extend(run_until(&stop, &plan, &program, measure)?);
        if stop.requested() {
            break;
        }
    }
    if runs.is_empty() {
        return nothing_measured("market-spread");
    }
    let p50s: Vec<f64> = runs.iter().map(|run| run.internal.p50_us).collect();
    let median = runs[median_index(&p50s)].clone();
    let text = median.to_string();
    let agreed = runs.iter().try_for_each(|run| run.counts.agree());
    report::print(&Runs { median, runs }, &text, args.json)?;
    agreed
}
