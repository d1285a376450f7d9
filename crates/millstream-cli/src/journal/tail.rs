//! `millstream journal tail`: print the last records, and those that come.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Reader, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::line::{Lines, Style};
use super::open::open_to_read;
use super::output::Output;
use crate::moment::{self, Moment};
use crate::outcome::{End, Outcome};
use crate::stop::Stop;

/// How long a wait may be before signals and the reader of the output are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The options of `millstream journal tail`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream journal tail -f orders\n  millstream journal tail -f orders --since \"10 minutes ago\""
)]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// Begin with this many of the last records.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    count: u64,
    /// Begin with this sequence number.
    #[arg(long, value_name = "SEQ", conflicts_with = "count")]
    from: Option<u64>,
    /// Begin at this time, as `millstream journal cat` takes it.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["count", "from"], value_parser = moment::parse)]
    since: Option<Moment>,
    /// Then print records as they are appended, by any process, until Ctrl-C.
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    style: Style,
}

/// Print the records.
pub(super) fn run(args: &Args, stop: &Stop) -> Outcome {
    args.style.check()?;
    let journal = if args.follow {
        open_to_follow(&args.dir)?
    } else {
        open_to_read(&args.dir)?
    };
    let first = journal.first()?;
    let next = journal.next()?;
    let last_ones = next.saturating_sub(args.count).max(first);
    let mut reader = journal.reader()?;
    match &args.since {
        Some(since) => {
            since.explain("--since");
            reader.seek_time(since.time_ns)?;
        }
        None => reader.seek(args.from.unwrap_or(last_ones))?,
    }
    let mut lines = args.style.lines(&journal);
    let mut out = Output::stdout();
    let outcome = print(&mut reader, &mut lines, &mut out, args.follow, stop);
    out.flush()?;
    outcome?;
    lines.end()
}

fn print(
    reader: &mut Reader,
    lines: &mut Lines,
    out: &mut Output,
    follow: bool,
    stop: &Stop,
) -> Outcome {
    while !stop.requested() {
        if let Some(record) = reader.next()? {
            out.record(&record, lines)?;
        } else if follow {
            out.flush()?;
            while !reader.wait(Wait::Block, Some(LOOK_EVERY))? && !stop.requested() {
                look_for_reader()?;
            }
        } else {
            break;
        }
    }
    Ok(())
}

/// Open so that appending writers wake us. Where that is not allowed, or the journal belongs to one process alone, look
/// often.
fn open_to_follow(path: &Path) -> Outcome<Journal> {
    let options = Options {
        create: false,
        ..Options::default()
    };
    match Journal::open(path, options) {
        Err(Error::Locked { .. }) => open_to_read(path),
        Err(Error::Io { source, .. })
            if matches!(
                source.kind(),
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            open_to_read(path)
        }
        opened => Ok(opened?),
    }
}

/// A pipe whose other end was closed is seen at the next write only, which may never come.
fn look_for_reader() -> Outcome {
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut watched, Some(&now)) {
        Ok(_) if watched[0].revents().contains(PollFlags::ERR) => Err(End::ReaderGone),
        _ => Ok(()),
    }
}
