//! `millstream-bench service`.

use std::path::PathBuf;

use millstream_cli::failure::Failure;
use millstream_cli::report;
use millstream_cli::stop::Stop;

use super::{check, nothing_measured};
use crate::service::{self, What};

/// A system of typed calls to compare with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum System {
    /// Chronicle Queue from Maven Central: self-describing, and with an order written by hand.
    Chronicle,
}

/// The options of `millstream-bench service`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench service --rate 100000 --folder /dev/shm\n  millstream-bench service --against chronicle"
)]
pub struct Args {
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
pub struct ConsumerArgs {
    folder: PathBuf,
    measured_from: u64,
}

/// Measures.
pub fn run(args: &Args) -> Result<(), Failure> {
    check(args.rate, args.seconds)?;
    check(0.0, args.warm_up)?;
    let stop = Stop::on_signals()?;
    let plan = service::Plan {
        what: if args.ticks {
            What::Ticks
        } else {
            What::Orders
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
        Ok(None) => nothing_measured("service"),
        Err(_) if stop.requested() => nothing_measured("service"),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Runs the consumer.
pub fn consumer(args: &ConsumerArgs) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let consumed = service::consume(&args.folder, args.measured_from, &stop.flag());
    report::print(&consumed.map_err(Failure::failed)?, "", true)
}
