//! `millstream journal import`: records from lines of JSON, with their times and numbers.
//!
//! A journal that is made begins with the number of the first line. From there on each line that names a number must
//! name the one its record gets, so that a file with a hole is noticed.

use std::path::PathBuf;

use millstream_flow::framing::Framing;
use millstream_journal::{Error, Host, Journal, Options, Sync, Writer, chain};
use serde::Serialize;

use super::input::Input;
use super::line::{self, Parsed};
use super::open::AppendOptions;
use crate::outcome::{End, Outcome};
use crate::progress::Progress;
use crate::report;
use crate::stop::Stop;

/// Base64 and escapes make a line longer than its record: by a factor of 6 at most.
const LINE_BYTES_MAX: usize = 6 * (1 << 28);

/// The options of `millstream journal import`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A line is {\"sequence\": 7, \"time\": \"2026-11-21T16:42:40Z\", \"text\": \"...\"}, with \"base64\" in place of \
                  \"text\" for bytes; sequence and time may be left out.\n\nExample:\n  \
                  millstream journal import orders-copy --in orders.jsonl"
)]
pub(super) struct Args {
    /// The journal's directory; made when there is none.
    dir: PathBuf,
    /// The file to read [default: standard input].
    #[arg(long = "in", short = 'i', value_name = "FILE")]
    input: Option<PathBuf>,
    /// Give the records new numbers, whatever the lines say.
    #[arg(long)]
    renumber: bool,
    #[command(flatten)]
    making: AppendOptions,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was imported.
#[derive(Debug, Default, Serialize)]
struct Report {
    records: u64,
    /// Where the journal ends now.
    next: u64,
}

/// Append the records of all lines.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    let mut input = Input::open(args.input.as_deref(), Framing::Lines, LINE_BYTES_MAX)?;
    let size = args.input.as_ref().and_then(|path| path.metadata().ok());
    let mut progress = size.map(|size| Progress::new(size.len(), "bytes"));
    let mut import = Import {
        args,
        host: Host::real(),
        writer: None,
        lines: 0,
        report: Report::default(),
    };
    let mut bytes = 0;
    while input.read(stop)? {
        for frame in input.frames() {
            bytes += frame.len() as u64 + 1;
            import.line(frame)?;
        }
        progress.iter_mut().for_each(|bar| bar.at(bytes));
    }
    drop(progress);
    let report = import.end()?;
    let text = format!(
        "{} records imported, the next one will be {}",
        report.records, report.next
    );
    Ok(report::print(&report, &text, args.json)?)
}

struct Import<'a> {
    args: &'a Args,
    host: Host,
    writer: Option<Writer>,
    lines: u64,
    report: Report,
}

impl Import<'_> {
    fn line(&mut self, line: &[u8]) -> Outcome {
        self.lines += 1;
        let number = self.lines;
        let done = self.report.records;
        let at = |what: String| {
            let before = match done {
                0 => String::new(),
                1 => "; the record before it was imported".to_owned(),
                done => format!("; the {done} records before it were imported"),
            };
            End::from(format!("line {number}: {what}{before}"))
        };
        let record = line::parse(line).map_err(at)?;
        let writer = match &self.writer {
            Some(writer) => writer,
            None => self.writer.insert(open(self.args, record.sequence)?),
        };
        let next = match self.lines {
            1 => writer.journal().next()?,
            _ => self.report.next,
        };
        let Parsed {
            sequence,
            time_ns,
            body,
        } = record;
        if let Some(sequence) = sequence.filter(|sequence| *sequence != next)
            && !self.args.renumber
        {
            return Err(at(format!(
                "it is record {sequence}, and the journal's next one is {next} (--renumber gives new numbers)"
            )));
        }
        let time_ns = time_ns.unwrap_or_else(|| self.host.time_ns());
        let given = writer
            .append_at(time_ns, &body)
            .map_err(|error| at(chain(&error).to_string()))?;
        self.report.records += 1;
        self.report.next = given + 1;
        if given != next && !self.args.renumber {
            return Err(at(format!(
                "another process appends to the journal: the record got number {given}, not {next}"
            )));
        }
        Ok(())
    }

    /// Syncs all records before they are reported as imported.
    fn end(mut self) -> Outcome<Report> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => open(self.args, None)?,
        };
        writer.sync()?;
        self.report.next = writer.journal().next()?;
        Ok(self.report)
    }
}

/// Open the journal, or make one whose first record gets the number `first`.
fn open(args: &Args, first: Option<u64>) -> Result<Writer, Error> {
    let options = Options {
        first_sequence: first.filter(|_| !args.renumber).unwrap_or(0),
        ..args.making.options()
    };
    // One sync at the end is enough: nothing is acknowledged before.
    let sync = match options.sync {
        Sync::Always => Sync::Never,
        other => other,
    };
    Journal::open(&args.dir, options.with_sync(sync))?.writer()
}
