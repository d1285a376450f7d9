//! `millstream journal promote`: make copies leaders.

use std::path::PathBuf;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::report;
use millstream_replication::{Promoted, promote};

/// The options of `millstream journal promote`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
All journals begin one new term, whose number is above all that they know. Followers refuse a leader in an older term, and
an old leader refuses appends as soon as it learns of a newer one: from a follower, from `journal serve --tell`, or from
`journal rejoin`. Stop the followers of these copies first; name all journals of a set in one command.

Example:
  millstream journal promote copies
  millstream journal promote orders-copy fills-copy")]
pub(super) struct Args {
    /// Directories of copies, or of sets of copies. DIR.schedule and DIR.snapshots go with DIR.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was promoted.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    term: u64,
    /// The first sequence number of the term.
    start: u64,
    previous_term: u64,
    was_copy: bool,
}

/// Promote.
pub(super) fn run(args: &Args) -> Outcome {
    let promoted = promote(&args.dirs)?;
    let reports: Vec<_> = promoted.into_iter().map(Report::of).collect();
    let lines: Vec<_> = reports.iter().map(Report::text).collect();
    Ok(report::print(&reports, &lines.join("\n"), args.json)?)
}

impl Report {
    fn of(promoted: Promoted) -> Self {
        Report {
            path: promoted.dir,
            term: promoted.term,
            start: promoted.start,
            previous_term: promoted.before,
            was_copy: promoted.was_copy,
        }
    }

    fn text(&self) -> String {
        format!(
            "{}: leads in term {} from record {} on; it was {} in term {}",
            self.path.display(),
            self.term,
            self.start,
            if self.was_copy { "a copy" } else { "no copy" },
            self.previous_term
        )
    }
}
