//! `millstream state follow`: keep a live copy of the state of a flow that runs on another machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::checkpoint::committed_end;
use millstream_journal::Sync;
use millstream_replication::{FollowOptions, Mirror, follow};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use crate::journal::leader::{self, Trust};
use crate::journal::own_name;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;
use crate::{log, moment};

/// The options of `millstream state follow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The flow is one that runs with --replica HOST:PORT. The copy is at each moment one from which the flow can be started, as of the last
commit in it: after `millstream state promote DIR`. Follow each process of a flow of several, all into one directory.

Example:
  millstream run flow.py --state state --replica 0.0.0.0:7750 --secret-file secret --commit-on-replica    # on the first machine
  millstream state follow first.example:7750 copy --secret-file secret                # on another machine")]
pub(super) struct Args {
    /// Where the flow serves its state.
    #[arg(value_name = "HOST:PORT", value_parser = leader::parse_address)]
    leader: (String, u16),
    /// The directory of the copy, as --state has the original; made when there is none.
    dir: PathBuf,
    /// The follower's name, which no other follower of the flow has [default: this host's name and the directory's].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// When records are acknowledged: never, always, or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    sync: Sync,
    #[command(flatten)]
    trust: Trust,
    /// End when the copy has all that the flow had when it was met. Do not try again after a failure.
    #[arg(long)]
    once: bool,
    /// The longest pause before another try.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = moment::parse_duration)]
    retry_max: Duration,
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
    let (secret, tls) = args.trust.read()?;
    let (host, port) = &args.leader;
    let options = FollowOptions {
        mirror: Some(Mirror {
            dir: args.dir.clone(),
            floor: committed_end,
        }),
        name: args.name.unwrap_or_else(|| own_name(&args.dir)),
        sync: args.sync,
        secret,
        tls,
        once: args.once,
        retry_max: args.retry_max,
        ..FollowOptions::new(host, *port, Path::new(""))
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
        args.dir.display()
    );
    Ok(report::print(&report, &text, args.json)?)
}
