//! `millstream queue follow`: keep a live copy of the queues of a server on another machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::Sync;
use millstream_queue::replica::follow_into;
use millstream_replication::FollowOptions;
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use crate::journal::leader::{self, Trust};
use crate::journal::own_name;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;
use crate::{log, moment};

/// The options of `millstream queue follow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The server is one that runs with --replica HOST:PORT. When its machine is lost, `millstream queue promote DIR` makes the copy the
queues, and `millstream queue serve --dir DIR --replica ...` serves them.

Example:
  millstream queue serve --dir queues --replica 0.0.0.0:7760 --secret-file secret --commit-on-replica    # on the first machine
  millstream queue follow first.example:7760 queues --secret-file secret                # on another machine")]
pub(super) struct Args {
    /// Where the server serves its followers.
    #[arg(value_name = "HOST:PORT", value_parser = leader::parse_address)]
    leader: (String, u16),
    /// The directory of the copy; made when there is none.
    dir: PathBuf,
    /// The follower's name, which no other follower of the server has [default: this host's name and the directory's].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// When changes are acknowledged: never, always, or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    sync: Sync,
    #[command(flatten)]
    trust: Trust,
    /// End when the copy has all that the server had when it was met. Do not try again after a failure.
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
    changes: u64,
    /// The number of the next change.
    next: u64,
}

/// Follow until a signal comes.
pub(super) fn run(args: Args) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let stop = Stop::on_signals()?;
    let (secret, tls) = args.trust.read()?;
    let (host, port) = &args.leader;
    let options = FollowOptions {
        name: args.name.unwrap_or_else(|| own_name(&args.dir)),
        sync: args.sync,
        secret,
        tls,
        once: args.once,
        retry_max: args.retry_max,
        ..FollowOptions::new(host, *port, Path::new(""))
    };
    let followed = follow_into(&args.dir, &options, &stop.flag())
        .map_err(|cause| format!("{}: {cause}", args.dir.display()))?;
    let report = Report {
        changes: followed.records,
        next: followed.next,
    };
    let text = format!(
        "{} changes copied to {}; the next one is {}",
        report.changes,
        args.dir.display(),
        report.next
    );
    Ok(report::print(&report, &text, args.json)?)
}
