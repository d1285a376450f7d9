//! `millstream journal export`: records as lines of JSON.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::super::stop::Stop;
use super::line::Lines;
use super::output::Output;
use super::progress::Progress;
use super::range::{self, Choice};
use super::{Outcome, open_to_read};

/// The options of `millstream journal export`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each line has the record's sequence number, its time, and its body as \"text\" or, when that is no \
                  UTF-8, as \"base64\".\n\nExample:\n  millstream journal export orders --since 1d --out orders.jsonl"
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// The file to write [default: standard output].
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

/// Write the records.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    let journal = open_to_read(&args.dir)?;
    let range = args.choice.of(&journal)?;
    let mut out = Output::open(args.out.as_deref())?;
    // A bar between the lines would spoil both.
    let shown = args.out.is_some() || !std::io::stdout().is_terminal();
    let mut lines = Lines::EXPORT;
    let mut progress = shown.then(|| Progress::new(range.end - range.start, "records"));
    let outcome = range::each(&journal, range, stop, |record| {
        progress.iter_mut().for_each(Progress::step);
        out.record(&record, &mut lines)
    });
    out.flush()?;
    outcome.map(drop)
}
