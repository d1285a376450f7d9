//! `millstream journal append`: a record for each line or frame of standard input, acknowledged by its number.
//!
//! Lines that one read returns are appended together, with one sync for all. A number is printed only after its record
//! is as durable as `--sync` says and, if followers are waited for, acknowledged by them.

use std::path::PathBuf;
use std::time::Duration;

use millstream_flow::framing::Framing;
use millstream_journal::Journal;
use serde::Serialize;

use super::input::Input;
use super::open::{AppendOptions, check_no_changes};
use super::output::Output;
use crate::moment;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;
use millstream_replication::Followers;

/// The options of `millstream journal append`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream journal append orders < orders.txt\n  \
                  tail -f log | millstream journal append logs --sync 100ms --quiet"
)]
pub(super) struct Args {
    /// The journal's directory; made when there is none.
    dir: PathBuf,
    /// Where a record ends: lines, u8, u16, u16le, u32, u32le (a length before each) or fixed:N.
    #[arg(long, default_value = "lines")]
    framing: Framing,
    #[command(flatten)]
    making: AppendOptions,
    /// Acknowledge a record only after a follower has, as `journal follow` does; it is an error when that takes longer
    /// than TIME.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "30s",
          value_parser = moment::parse_duration)]
    wait_follower: Option<Duration>,
    /// Do not print the sequence number of each record.
    #[arg(long, short = 'q', conflicts_with = "json")]
    quiet: bool,
    /// Report as JSON at the end, instead of a number for each record.
    #[arg(long)]
    json: bool,
}

/// What was appended.
#[derive(Debug, Default, Serialize)]
struct Report {
    records: u64,
    /// Without line ends and lengths.
    bytes: u64,
    /// The sequence numbers of the first and the last record; other processes may have appended in between.
    first: Option<u64>,
    last: Option<u64>,
}

/// Append until the input ends.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    check_no_changes(&args.dir)?;
    let journal = Journal::open(&args.dir, args.making.options())?;
    let writer = journal.writer()?;
    // A record that is too large is found when the input is cut: all before it are appended and acknowledged.
    let longest = writer.record_bytes_max() as usize;
    let mut followers = Followers::of(&journal);
    let mut input = Input::open(None, args.framing.clone(), longest)?;
    let mut out = Output::stdout();
    let mut report = Report::default();
    while input.read(stop)? {
        let frames = input.frames();
        if frames.len() == 0 {
            continue;
        }
        let range = writer.append_many(frames.clone())?;
        if let Some(limit) = args.wait_follower {
            followers.wait(range.end - 1, 1, Some(limit))?;
        }
        report.records += range.end - range.start;
        report.bytes += frames.map(|frame| frame.len() as u64).sum::<u64>();
        report.first.get_or_insert(range.start);
        report.last = Some(range.end - 1);
        if !args.quiet && !args.json {
            for sequence in range {
                out.line(sequence)?;
            }
            out.flush()?;
        }
    }
    if args.json {
        report::print(&report, "", true)?;
    }
    Ok(())
}
