//! `millstream state follow`: keep a live copy of the state of a flow that runs on another machine.

use millstream_flow::checkpoint::committed_end;
use millstream_replication::{FollowOptions, Mirror, follow};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use crate::journal::following::Following;
use crate::log;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream state follow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The flow is one that runs with --replica HOST:PORT. The copy is at each moment one from which the flow can be started, as of the last
commit in it: after `millstream state promote DIR`. Follow each process of a flow of several, all into one directory.

Example:
  millstream run flow.py --state state --replica 0.0.0.0:7750 --secret-file secret --commit-on-replica    # on the first machine
  millstream state follow first.example:7750 copy --secret-file secret                # on another machine")]
pub(super) struct Args {
    #[command(flatten)]
    following: Following,
    /// Report as JSON at the end.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: log::Logging,
}

/// What was followed.
#[derive(Debug, Serialize)]
struct Report {
    journals: usize,
    records: u64,
}

/// Follow until a signal comes.
pub(super) fn run(args: Args, stop: &Stop) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let dir = args.following.dir.clone();
    let options = FollowOptions {
        mirror: Some(Mirror {
            dir: dir.clone(),
            floor: committed_end,
        }),
        ..args.following.options()?
    };
    let followed = follow(&options, &stop.flag())?;
    let report = Report {
        journals: followed.len(),
        records: followed.iter().map(|one| one.records).sum(),
    };
    let text = format!(
        "{} records of {} journals copied to {}",
        report.records,
        report.journals,
        dir.display()
    );
    Ok(report::print(&report, &text, args.json)?)
}
