//! `millstream journal cat`: print records.

use std::path::PathBuf;

use super::line::Style;
use super::open::open_to_read;
use super::output::Output;
use super::range::{self, Choice};
use crate::outcome::Outcome;
use crate::stop::Stop;

/// The options of `millstream journal cat`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream journal cat orders --from 1000 -n 20\n  \
                  millstream journal cat orders --since 10m --json\n  \
                  millstream journal cat orders --since \"yesterday 14:00\" --until today\n  \
                  millstream journal cat replies --body calls"
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    style: Style,
}

/// Print the records.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    args.style.check()?;
    let journal = open_to_read(&args.dir)?;
    let range = args.choice.of(&journal)?;
    let mut lines = args.style.lines(&journal);
    let mut out = Output::stdout();
    let outcome = range::each(&journal, range, stop, |record| {
        out.record(&record, &mut lines)
    });
    // What came before a damage is good.
    out.flush()?;
    outcome?;
    lines.end()
}
