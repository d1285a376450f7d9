//! `millstream journal info`: what a journal holds, at a glance.

use std::path::PathBuf;

use bytesize::ByteSize;
use millstream_journal::{Info, Leadership};
use serde::Serialize;

use super::open::open_to_read;
use crate::moment;
use crate::outcome::Outcome;
use crate::report;

/// The options of `millstream journal info`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream journal info orders --json")]
pub(super) struct Args {
    /// The journal's directory.
    dir: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// A journal at a glance.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    version: u32,
    records: u64,
    /// The oldest record.
    first: u64,
    /// The number that the next record gets.
    next: u64,
    /// All records before this one survive a loss of power.
    durable: u64,
    segments: u64,
    segment_bytes: u64,
    /// Of frames in all segments.
    bytes: u64,
    first_time: Option<String>,
    last_time: Option<String>,
    cursors: Vec<Cursor>,
    /// Processes that have the journal open to append.
    writers: Vec<u32>,
    /// Raised by each promotion of a copy.
    term: u64,
    /// The newer term in which another copy leads: nothing is appended here.
    superseded_by: Option<u64>,
    /// Whether only a follower appends.
    is_copy: bool,
}

#[derive(Debug, Serialize)]
struct Cursor {
    name: String,
    position: u64,
    /// Records that it has not passed.
    behind: u64,
    /// Of a follower, whether it counts for `wait_follower`.
    counts: Option<bool>,
}

/// Tell.
pub(super) fn run(args: &Args) -> Outcome {
    let journal = open_to_read(&args.dir)?;
    let report = Report::of(journal.info()?, journal.leadership()?);
    Ok(report::print(&report, &report.to_string(), args.json)?)
}

impl Report {
    fn of(info: Info, leadership: Leadership) -> Self {
        let cursors = info.cursors.into_iter().map(|cursor| Cursor {
            counts: cursor.follower().map(|_| cursor.counts()),
            name: cursor.name,
            behind: info.next.saturating_sub(cursor.position),
            position: cursor.position,
        });
        Report {
            version: info.version,
            records: info.next - info.first,
            first: info.first,
            next: info.next,
            durable: info.durable,
            segments: info.segments,
            segment_bytes: info.segment_bytes,
            bytes: info.bytes,
            first_time: info.times_ns.map(|(first, _)| moment::show(first)),
            last_time: info.times_ns.map(|(_, last)| moment::show(last)),
            cursors: cursors.collect(),
            writers: info.writers,
            term: leadership.term,
            superseded_by: leadership.superseded_by,
            is_copy: leadership.is_copy,
            path: info.path,
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "journal    {}, format version {}",
            self.path.display(),
            self.version
        )?;
        match self.records {
            0 => writeln!(f, "records    none, the next one will be {}", self.next)?,
            n => writeln!(
                f,
                "records    {n}, from {} to {}",
                self.first,
                self.next - 1
            )?,
        }
        if let (Some(first), Some(last)) = (&self.first_time, &self.last_time) {
            writeln!(f, "times      {first} to {last}")?;
        }
        writeln!(f, "durable    before record {}", self.durable)?;
        write!(
            f,
            "size       {} in {} segment(s) of {}",
            ByteSize(self.bytes),
            self.segments,
            ByteSize(self.segment_bytes)
        )?;
        if self.term > 0 || self.is_copy || self.superseded_by.is_some() {
            write!(f, "\nterm       {}", self.term)?;
            if self.is_copy {
                f.write_str(", a copy: only its follower appends")?;
            }
            if let Some(by) = self.superseded_by {
                write!(f, ", superseded by term {by}: nothing is appended")?;
            }
        }
        for cursor in &self.cursors {
            write!(
                f,
                "\ncursor     {} at {}, {} behind",
                cursor.name, cursor.position, cursor.behind
            )?;
            if cursor.counts == Some(false) {
                f.write_str(", does not count")?;
            }
        }
        if !self.writers.is_empty() {
            let pids: Vec<String> = self.writers.iter().map(u32::to_string).collect();
            write!(f, "\nwriters    processes {}", pids.join(", "))?;
        }
        Ok(())
    }
}
