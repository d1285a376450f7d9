//! `millstream-bench http`.

use std::path::PathBuf;
use std::time::Duration;

use millstream_cli::failure::Failure;
use millstream_cli::report;
use millstream_cli::stop::Stop;

use crate::http;

/// The options of `millstream-bench http`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench http --pin --runs 5\n  millstream-bench http --python --sync never"
)]
pub struct Args {
    /// How many runs; the report is the median one.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Seconds of load in each.
    #[arg(long, value_name = "T", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Connections, each with one request at a time.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Lines of JSON in a request; each is an item.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    lines: u32,
    /// When a request is answered.
    #[arg(long, value_name = "S", default_value = "always")]
    sync: Sync,
    /// The flow in Python; needs the Python package.
    #[arg(long)]
    python: bool,
    /// The flow on core 0, the load on core 1.
    #[arg(long)]
    pin: bool,
    /// Where state and journal are kept meanwhile: the disk that is measured.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// When a request is answered.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Sync {
    /// After it was synced.
    Always,
    /// After it was written.
    Never,
}

/// The options of the flow.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    state: PathBuf,
    journal: PathBuf,
    sync: Sync,
}

/// Measures.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = http::Plan {
        runs: args.runs,
        time: Duration::from_secs_f64(args.seconds),
        connections: args.connections,
        lines: args.lines,
        sync: args.sync == Sync::Always,
        python: args.python,
        pin: args.pin,
        dir: args.dir.clone(),
    };
    let figures = http::measure(&plan).map_err(Failure::failed)?;
    report::print(&figures, &figures.to_string(), args.json)
}

/// Runs the flow.
pub fn serve(args: &ServerArgs) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let sync = args.sync == Sync::Always;
    http::serve(&args.state, &args.journal, sync, &stop.flag()).map_err(Failure::failed)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds, from 0.01 to 3600".to_owned()),
    }
}
