//! `millstream-bench queue`.

use std::path::PathBuf;

use millstream_cli::failure::Failure;
use millstream_cli::{address, report};
use millstream_queue::address::Address;

use crate::{embedded, queue};

/// The options of `millstream-bench queue`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream-bench queue --runs 3 --seconds 1\n  millstream-bench queue --against redis --only \"100 conn\""
)]
pub struct Args {
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
    /// Measure a server that is already running, of any maker: only what needs no restart.
    #[arg(long, value_name = "ADDRESS", value_parser = address::parse_server)]
    server: Option<Address>,
    /// Take turns with another server, which must be installed.
    #[arg(long, value_name = "SERVER", conflicts_with = "server")]
    against: Option<queue::Against>,
    /// So many endless loops of a shell use the cores too.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "in_process", value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: u32,
    /// Over Unix sockets instead of loopback, for all servers.
    #[arg(long, conflicts_with_all = ["server", "in_process"])]
    unix: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// Measures.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.in_process {
        let plan = embedded::Plan {
            runs: args.runs,
            seconds: args.seconds,
            dir: args.dir,
            only: args.only,
        };
        let report = embedded::measure(&plan).map_err(Failure::failed)?;
        return report::print(&report, &report.to_string(), args.json);
    }
    let plan = queue::Plan {
        runs: args.runs,
        seconds: args.seconds,
        dir: args.dir,
        only: args.only,
        server: args.server,
        against: args.against,
        busy: args.busy,
        unix: args.unix,
    };
    let report = queue::measure(&plan).map_err(Failure::failed)?;
    report::print(&report, &report.to_string(), args.json)
}
