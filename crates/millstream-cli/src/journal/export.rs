//! `millstream journal export`: records as lines of JSON, or the calls of a service as YAML.

use std::io::IsTerminal;
use std::path::PathBuf;

use super::line::Lines;
use super::open::open_to_read;
use super::output::Output;
use super::range::{self, Choice};
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::stop::Stop;
use millstream_journal::context;
use millstream_service::Calls;

/// The options of `millstream journal export`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Each line has the record's sequence number, its time, and its body as \"text\" or, when that is no \
                  UTF-8, as \"base64\".\n\nExamples:\n  millstream journal export orders --since 1d --out orders.jsonl\n  \
                  millstream journal export orders --yaml --from 100 --to 200 --out tests/monday/in.yaml"
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// The file to write [default: standard output].
    #[arg(long, short = 'o', value_name = "FILE")]
    out: Option<PathBuf>,
    /// The calls of a service as documents of YAML, as tests have them; other records are skipped.
    #[arg(long)]
    yaml: bool,
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
    let mut calls = args.yaml.then(|| Calls::of(&journal));
    let mut separator = "";
    let mut progress = shown.then(|| Progress::new(range.end - range.start, "records"));
    let outcome = range::each(&journal, range, stop, |record| {
        progress.iter_mut().for_each(Progress::step);
        let Some(calls) = &mut calls else {
            return out.record(&record, &mut lines);
        };
        let document = calls.document(&record).map_err(|cause| {
            let dir = args.dir.display();
            let sequence = record.sequence;
            Failure::failed(context(format_args!("{dir}, record {sequence}"), cause))
        })?;
        match document {
            Some(document) => {
                let before = std::mem::replace(&mut separator, "---\n");
                out.line(format_args!("{before}{}", document.trim_end_matches('\n')))
            }
            None => Ok(()),
        }
    });
    out.flush()?;
    outcome.map(drop)
}
