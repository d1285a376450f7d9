//! `millstream journal prune`: remove old records.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use millstream_journal::{Journal, Options, Retention};
use serde::Serialize;

use super::open::check_no_changes;
use crate::moment;
use crate::outcome::Outcome;
use crate::report;

/// The options of `millstream journal prune`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Whole segments are removed, oldest first; the newest one stays.\n\n\
                  Example:\n  millstream journal prune orders --age 7d --keep-for-cursors"
)]
#[group(required = true, multiple = true)]
pub(super) struct Limits {
    /// Remove segments until all that are left have at most this size, like 10GiB.
    #[arg(long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// Remove segments whose last record is older than this, like 7d.
    #[arg(long, value_name = "TIME", value_parser = moment::parse_duration)]
    age: Option<Duration>,
    /// Keep what a cursor has not passed; without another limit, remove all that every cursor has passed.
    #[arg(long)]
    keep_for_cursors: bool,
}

/// The options of `millstream journal prune`.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    #[command(flatten)]
    limits: Limits,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was removed.
#[derive(Debug, Serialize)]
struct Report {
    segments: u64,
    bytes: u64,
    /// The oldest record that is left.
    first: u64,
}

/// Remove what the limits say.
pub(super) fn run(args: &Args) -> Outcome {
    check_no_changes(&args.dir)?;
    let options = Options {
        create: false,
        ..Options::default()
    };
    let journal = Journal::open(&args.dir, options)?;
    let pruned = journal.prune(&Retention {
        bytes: args.limits.bytes.map(|bytes| bytes.as_u64()),
        age: args.limits.age,
        keep_for_cursors: args.limits.keep_for_cursors,
    })?;
    let report = Report {
        segments: pruned.segments,
        bytes: pruned.bytes,
        first: pruned.first,
    };
    let text = format!(
        "{} segment(s) removed, {}; the first record is {}",
        report.segments,
        ByteSize(report.bytes),
        report.first
    );
    Ok(report::print(&report, &text, args.json)?)
}
