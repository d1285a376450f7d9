//! `millstream-bench journal`.

use std::path::PathBuf;

use millstream_cli::failure::Failure;
use millstream_cli::report;
use millstream_cli::stop::Stop;

use crate::journal::{self, Part, Plan, role};

/// The options of `millstream-bench journal`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream-bench journal --only speed --only processes --json")]
pub struct Args {
    /// How many runs; every figure is their median.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure this part only; may be given several times.
    #[arg(long, value_name = "PART", value_enum)]
    only: Vec<Part>,
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

/// Measures.
pub fn run(args: Args) -> Result<(), Failure> {
    let plan = Plan {
        runs: args.runs,
        parts: args.only,
        folder: args.folder.unwrap_or_else(std::env::temp_dir),
        large_gib: args.large_gib,
        stop: Stop::on_signals()?.flag(),
    };
    let figures = journal::run(&plan).map_err(Failure::failed)?;
    report::print(&figures, &figures.to_string(), args.json)
}

/// Runs the role of the other process.
pub fn peer(role: &role::Role) -> Result<(), Failure> {
    role::play(role).map_err(Failure::failed)
}
