//! `millstream journal verify`: read everything and name every damage.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use millstream_journal::{Damage, Journal, Mapped, Options, Torn};
use serde::Serialize;

use super::output::Output;
use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream journal verify`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exits 1 when anything is damaged. A torn end, as a loss of power leaves it, is no damage: it is named, and the next opening \
                  to write truncates it. Nothing is written; other processes may append meanwhile.\n\n\
                  Example:\n  millstream journal verify orders"
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// False after Ctrl-C.
    complete: bool,
    /// Read ones.
    segments: u64,
    /// Sound ones.
    records: u64,
    /// Of frames that were read.
    bytes: u64,
    damages: Vec<Damaged<'a>>,
    /// The torn tail that the next opening to write truncates.
    torn: Option<Cut<'a>>,
}

#[derive(Debug, Serialize)]
struct Cut<'a> {
    path: &'a Path,
    offset: u64,
    /// At most.
    bytes: u64,
    /// At most.
    records_max: u64,
}

#[derive(Debug, Serialize)]
struct Damaged<'a> {
    path: &'a Path,
    offset: u64,
    what: &'a str,
    /// The records that cannot be read because of it, where that is known.
    records: Option<&'a Range<u64>>,
}

/// Read all of it.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    let mut bar: Option<Progress> = None;
    let found = Journal::verify_in(&Mapped::new(&args.dir), &Options::default(), |progress| {
        bar.get_or_insert_with(|| Progress::new(progress.segments_total, "segments"))
            .at(progress.segments);
        if stop.requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    drop(bar);
    if args.json {
        let report = Report {
            complete: found.complete,
            segments: found.segments,
            records: found.records,
            bytes: found.bytes,
            damages: found.damages.iter().map(Damaged::of).collect(),
            torn: found.torn.as_ref().map(Cut::of),
        };
        report::print(&report, "", true)?;
    } else {
        let mut out = Output::stdout();
        for damage in &found.damages {
            out.line(Damaged::of(damage))?;
        }
        if let Some(torn) = &found.torn {
            out.line(Cut::of(torn))?;
        }
        let size = ByteSize(found.bytes);
        out.line(format_args!(
            "{} sound records in {} segment(s), {size}{}",
            found.records,
            found.segments,
            if found.complete {
                ""
            } else {
                ": stopped before the end"
            }
        ))?;
        out.flush()?;
    }
    match found.damages.len() {
        0 => Ok(()),
        1 => Err(Failure::failed(format!("{}: 1 damage", args.dir.display())).into()),
        n => Err(Failure::failed(format!("{}: {n} damages", args.dir.display())).into()),
    }
}

impl<'a> Cut<'a> {
    fn of(torn: &'a Torn) -> Self {
        Cut {
            path: &torn.path,
            offset: torn.offset,
            bytes: torn.bytes,
            records_max: torn.records_max,
        }
    }
}

impl std::fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: torn at offset {}, as by a loss of power: the next opening to write cuts up to {} bytes ({} records at most), none of \
             them synced",
            self.path.display(),
            self.offset,
            self.bytes,
            self.records_max
        )
    }
}

impl<'a> Damaged<'a> {
    fn of(damage: &'a Damage) -> Self {
        Damaged {
            path: &damage.path,
            offset: damage.offset,
            what: &damage.what,
            records: damage.records.as_ref(),
        }
    }
}

impl std::fmt::Display for Damaged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        let offset = self.offset;
        let what = self.what;
        write!(f, "{path}: damaged at offset {offset}: {what}")?;
        match self.records {
            None => Ok(()),
            Some(records) if records.end - records.start == 1 => {
                write!(f, " (record {})", records.start)
            }
            Some(records) => write!(f, " (records {} to {})", records.start, records.end - 1),
        }
    }
}
