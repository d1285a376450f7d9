//! `millstream queue follow`: keep a live copy of the queues of a server on another machine.

use millstream_journal::context;
use millstream_queue::replica::follow_into;
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use crate::journal::following::Following;
use crate::log;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream queue follow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The server is one that runs with --replica HOST:PORT. When its machine is lost, `millstream queue promote DIR` makes the copy the
queues, and `millstream queue serve --dir DIR --replica ...` serves them.

Example:
  millstream queue serve --dir queues --replica 0.0.0.0:7760 --secret-file secret --commit-on-replica    # on the first machine
  millstream queue follow first.example:7760 queues --secret-file secret                # on another machine")]
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
    changes: u64,
    /// The number of the next change.
    next: u64,
}

/// Follow until a signal comes.
pub(super) fn run(args: Args) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let stop = Stop::on_signals()?;
    let dir = args.following.dir.clone();
    let options = args.following.options()?;
    let followed =
        follow_into(&dir, &options, &stop.flag()).map_err(|cause| context(dir.display(), cause))?;
    let report = Report {
        changes: followed.records,
        next: followed.next,
    };
    let text = format!(
        "{} changes copied to {}; the next one is {}",
        report.changes,
        dir.display(),
        report.next
    );
    Ok(report::print(&report, &text, args.json)?)
}
