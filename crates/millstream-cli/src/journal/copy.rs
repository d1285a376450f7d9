//! `millstream journal copy`: records into a new journal, each checked on the way.

use std::path::PathBuf;

use millstream_journal::{Host, Identity, Journal, Options};
use serde::Serialize;

use super::open::open_to_read;
use super::range::{self, Choice};
use super::salvage;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream journal copy`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Others may append to the original meanwhile; the copy ends where it ended at the start.\n\n\
                  Examples:\n  millstream journal copy orders /backup/orders --since 7d\n  \
                  millstream journal copy --salvage torn orders"
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// The directory of the copy, which must not hold a journal yet.
    target: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Copy all records that are sound, also from a journal that cannot be opened: a copy by other programs that was
    /// torn, or a damaged one. No process may write to it. After a gap the records go into TARGET.from-N, where N is
    /// the first of them.
    #[arg(long, conflicts_with_all = ["from", "to", "since", "until", "count"])]
    salvage: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was copied.
#[derive(Debug, Serialize)]
struct Report {
    records: u64,
    /// The sequence number of the first record.
    first: u64,
    /// The one after the last.
    next: u64,
    /// Whether the whole range was copied: false after Ctrl-C.
    complete: bool,
}

/// Copy the records.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    if args.salvage {
        return salvage::run(&args.dir, &args.target, args.json, stop);
    }
    let journal = open_to_read(&args.dir)?;
    let range = args.choice.of(&journal)?;
    let options = Options {
        create_new: true,
        first_sequence: range.start,
        // What refers to the original finds its records in the copy under the same numbers.
        identity: Some(Identity::new(Some(journal.lineage()?), &Host::real())),
        segment_bytes: journal.info()?.segment_bytes,
        // What the original took, the copy takes.
        record_bytes_max: 1 << 28,
        sole_writer: true,
        ..Options::default()
    };
    let copy = Journal::open(&args.target, options)?;
    let writer = copy.writer()?;
    let mut progress = Progress::new(range.end - range.start, "records");
    let next = range::each(&journal, range.clone(), stop, |record| {
        writer.append_at(record.time_ns, record.body)?;
        progress.step();
        Ok(())
    })?;
    writer.sync()?;
    copy.adopt_terms(&journal.terms()?)?;
    drop(progress);
    let report = Report {
        records: next - range.start,
        first: range.start,
        next,
        complete: next == range.end,
    };
    let text = format!(
        "{} records copied, {}..{next}{}",
        report.records,
        range.start,
        if report.complete {
            String::new()
        } else {
            format!(": stopped before record {}", range.end)
        }
    );
    Ok(report::print(&report, &text, args.json)?)
}
