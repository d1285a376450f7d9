//! `millstream journal rejoin`: make an old leader's journals copies of the new leader's.

use std::path::PathBuf;

use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::leader::{self, Leader, Trust};
use crate::log;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;
use millstream_replication::{JournalPlan, Rejoin, RejoinOptions};

/// The options of `millstream journal rejoin`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without --yes nothing is changed when records would be dropped: the command says which, and ends with exit code 1. With
--yes they are first copied to the journal DIR.dropped-termN-fromM, with their numbers and times. Afterwards
`journal follow` keeps the copies up to date.

Example:
  millstream journal rejoin data --set orders,fills --leader new.example:7600 --secret-file secret
  millstream journal rejoin orders --leader new.example:7600 --yes")]
pub(super) struct Args {
    /// The directory of the old leader's journal; with --set the one that holds the journals, each under its name.
    dir: PathBuf,
    /// The new leader, and the name of its journal, if it serves more than one.
    #[arg(long, value_name = "HOST:PORT[/NAME]", value_parser = leader::parse)]
    leader: Leader,
    /// Several journals, inputs first, as for `journal follow --set`.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    set: Vec<String>,
    /// Drop the records that the new leader does not have, after setting them aside.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    trust: Trust,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: log::Logging,
}

/// What becomes of one journal.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    term: u64,
    leader_term: u64,
    /// All records before this one stay.
    keep: u64,
    /// How many records after that are dropped.
    dropped: u64,
    /// Where those are kept.
    aside: Option<PathBuf>,
}

/// Rejoin.
pub(super) fn run(args: Args, stop: &Stop) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let journals = args.leader.journals(&args.dir, &args.set)?;
    let (secret, tls) = args.trust.read()?;
    let options = RejoinOptions {
        leader: (args.leader.host, args.leader.port),
        journals,
        secret,
        tls,
    };
    rejoin(&options, (args.yes, args.json), stop, || Ok(()))
}

/// Make journals copies; where records are dropped, only if that is allowed (`yes`). `prepare` is called before
/// anything is changed.
pub(crate) fn rejoin(
    options: &RejoinOptions,
    (yes, json): (bool, bool),
    stop: &Stop,
    prepare: impl FnOnce() -> Outcome,
) -> Outcome {
    let rejoin = Rejoin::plan(options, &stop.flag())?;
    let reports: Vec<_> = rejoin.plans().into_iter().map(Report::of).collect();
    let lossy: Vec<_> = reports.iter().filter(|report| report.dropped > 0).collect();
    if !lossy.is_empty() && !yes {
        let lines: Vec<_> = lossy.iter().map(|report| report.text(false)).collect();
        let text = format!("{}; nothing was changed, --yes does it", lines.join("; "));
        return Err(text.into());
    }
    prepare()?;
    rejoin.carry_out()?;
    let lines: Vec<_> = reports.iter().map(|report| report.text(true)).collect();
    Ok(report::print(&reports, &lines.join("\n"), json)?)
}

impl Report {
    fn of(part: JournalPlan) -> Self {
        Report {
            path: part.dir,
            term: part.term,
            leader_term: part.leader_term,
            keep: part.keep,
            dropped: part.next - part.keep,
            aside: part.aside,
        }
    }

    fn text(&self, done: bool) -> String {
        let path = self.path.display();
        match &self.aside {
            None => format!(
                "{path}: a copy in term {}, nothing is dropped",
                self.leader_term
            ),
            Some(aside) => format!(
                "{path}: records {} to {} of term {} are not the leader's in term {}, and {} dropped (set aside in {})",
                self.keep,
                self.keep + self.dropped - 1,
                self.term,
                self.leader_term,
                if done { "were" } else { "would be" },
                aside.display()
            ),
        }
    }
}
