//! `millstream journal follow`: keep a live copy of a journal of another machine.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::following::Keeping;
use super::leader::{self, Leader};
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;
use crate::{log, moment};
use millstream_replication::{FollowOptions, Followed, follow};

/// The options of `millstream journal follow`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
What --sync promises the leader's writers, once a record is acknowledged:
  always    it survives a loss of power here. All that has come meanwhile shares one sync. The default
  TIME      the same, and the acknowledgement comes up to this time later
  never     it survives the death of this process; a loss of power here may cost about half a minute

Any process of this machine may read and tail the copy, and keep cursors in it; no other process may append to it.

Example:
  millstream journal follow leader.example:7600/orders orders-copy --secret-file secret
  millstream journal follow leader.example:7600 copies --set orders,fills --secret-file secret")]
pub(super) struct Args {
    /// The leader, and the name of its journal, if it serves more than one.
    #[arg(value_name = "HOST:PORT[/NAME]", value_parser = leader::parse)]
    leader: Leader,
    /// The directory of the copy; made when there is none. With --set the directory for the copies, each under its
    /// name.
    dir: PathBuf,
    /// Follow several journals as one set, named in the order in which records cause each other: inputs first. At each
    /// moment a copy holds no effect of a record that the copies before it do not hold. What a service keeps beside its
    /// output belongs to the output.
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        conflicts_with = "adopt"
    )]
    set: Vec<String>,
    #[command(flatten)]
    keeping: Keeping,
    /// Take the journal in DIR, copied by other means, for the copy, if its last record is the leader's.
    #[arg(long)]
    adopt: bool,
    /// The longest pause before another try.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = moment::parse_duration)]
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
    #[serde(skip_serializing_if = "String::is_empty")]
    journal: String,
    records: u64,
    /// The number of the record that comes next.
    next: u64,
    /// All before this one was acknowledged.
    acknowledged: u64,
}

/// Follow until a signal comes.
pub(super) fn run(args: Args, stop: &Stop) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let journals = args.leader.journals(&args.dir, &args.set)?;
    let leader = (args.leader.host.as_str(), args.leader.port);
    let options = FollowOptions {
        journals,
        adopt: args.adopt,
        retry_max: args.retry_max,
        ..args.keeping.options(leader, &args.dir)?
    };
    let followed = follow(&options, &stop.flag())?;
    let reports: Vec<_> = options
        .journals
        .iter()
        .zip(followed)
        .map(Report::of)
        .collect();
    if args.set.is_empty() {
        let report = &reports[0];
        return Ok(report::print(report, &report.text(), args.json)?);
    }
    let lines: Vec<_> = reports
        .iter()
        .map(|report| format!("{}: {}", report.journal, report.text()))
        .collect();
    Ok(report::print(&reports, &lines.join("\n"), args.json)?)
}

impl Report {
    fn of((journal, followed): (&(String, PathBuf), Followed)) -> Self {
        Report {
            journal: journal.0.clone(),
            records: followed.records,
            next: followed.next,
            acknowledged: followed.acknowledged,
        }
    }

    fn text(&self) -> String {
        format!(
            "{} records copied, the next one will be {}",
            self.records, self.next
        )
    }
}
