//! `millstream journal copy --salvage`: the sound records of a journal that is torn or damaged, even where it cannot be
//! opened.
//!
//! The numbers of a journal are dense, and records keep theirs. So where records are lost, the rest goes into another
//! journal, which begins with the record after the loss.

use std::path::{Path, PathBuf};

use millstream_journal::{Damage, Host, Identity, Journal, Options, Record, Salvage, Writer};
use serde::Serialize;

use crate::outcome::{End, Outcome};
use crate::report;
use crate::stop::Stop;

/// What was salvaged.
#[derive(Debug, Serialize)]
struct Report {
    /// The journals that were made, in the order of their records.
    parts: Vec<Part>,
    lost: Vec<Lost>,
    /// Whether the copies have the identity of the original, by which services and followers know it.
    same_identity: bool,
    /// Whether everything was read: false after Ctrl-C.
    complete: bool,
}

/// A journal without a gap.
#[derive(Debug, Serialize)]
struct Part {
    journal: PathBuf,
    records: u64,
    /// The sequence number of the first record.
    first: u64,
    /// The one after the last.
    next: u64,
}

/// What could not be read.
#[derive(Debug, Serialize)]
struct Lost {
    file: PathBuf,
    offset: u64,
    why: String,
    /// Not there where no record is known to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_record: Option<u64>,
    /// Not there where it is not known which one is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_record: Option<u64>,
}

/// The journals that are made.
struct Copies<'a> {
    target: &'a Path,
    lineage: u128,
    parts: Vec<Part>,
    /// The writer of the last part.
    writer: Option<Writer>,
}

/// Copies what is sound in `dir` into `target`, and into journals beside it after each gap.
pub(super) fn run(dir: &Path, target: &Path, json: bool, stop: &Stop) -> Outcome {
    let identity = Identity::of(dir).ok();
    let mut salvage = Salvage::open(dir)?;
    let mut copies = Copies {
        target,
        lineage: identity
            .unwrap_or_else(|| Identity::new(None, &Host::real()))
            .lineage,
        parts: Vec::new(),
        writer: None,
    };
    let mut complete = false;
    while !stop.requested() {
        let Some((_, record)) = salvage.next() else {
            complete = true;
            break;
        };
        copies.append(&record)?;
    }
    copies.sync()?;
    if copies.parts.is_empty() {
        return Err(End::from(format!("{}: no record is sound", dir.display())));
    }
    let report = Report {
        parts: copies.parts,
        lost: salvage.lost().iter().map(Lost::of).collect(),
        same_identity: identity.is_some(),
        complete,
    };
    Ok(report::print(&report, &report.text(), json)?)
}

impl Copies<'_> {
    fn append(&mut self, record: &Record<'_>) -> Outcome {
        let follows = |part: &Part| part.next == record.sequence;
        if !self.parts.last().is_some_and(follows) {
            self.begin(record.sequence)?;
        }
        if let (Some(writer), Some(part)) = (&self.writer, self.parts.last_mut()) {
            writer.append_at(record.time_ns, record.body)?;
            part.records += 1;
            part.next = record.sequence + 1;
        }
        Ok(())
    }

    /// Begins a journal with this record.
    fn begin(&mut self, first: u64) -> Outcome {
        self.sync()?;
        let mut path = self.target.components().as_path().as_os_str().to_owned();
        if !self.parts.is_empty() {
            path.push(format!(".from-{first}"));
        }
        let options = Options {
            create_new: true,
            first_sequence: first,
            identity: Some(Identity::new(Some(self.lineage), &Host::real())),
            record_bytes_max: 1 << 28,
            sole_writer: true,
            ..Options::default()
        };
        self.writer = Some(Journal::open(&path, options)?.writer()?);
        self.parts.push(Part {
            journal: path.into(),
            records: 0,
            first,
            next: first,
        });
        Ok(())
    }

    /// The records so far survive a loss of power.
    fn sync(&mut self) -> Outcome {
        if let Some(writer) = self.writer.take() {
            writer.sync()?;
        }
        Ok(())
    }
}

impl Lost {
    fn of(damage: &Damage) -> Self {
        let records = damage.records.as_ref();
        let end = records.map(|records| records.end);
        Lost {
            file: damage.path.clone(),
            offset: damage.offset,
            why: damage.what.clone(),
            first_record: records.map(|records| records.start),
            last_record: end
                .filter(|end| *end != u64::MAX)
                .map(|end| end.saturating_sub(1)),
        }
    }

    /// The lost records, as far as they are known.
    fn records(&self) -> String {
        match (self.first_record, self.last_record) {
            (Some(first), Some(last)) if first == last => format!(", record {first}"),
            (Some(first), Some(last)) => format!(", records {first} to {last}"),
            (Some(first), None) => format!(", records from {first} on"),
            (None, _) => String::new(),
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for part in &self.parts {
            let journal = part.journal.display();
            let records = part.records;
            lines.push(format!(
                "{journal}: {records} records copied, {}..{}",
                part.first, part.next
            ));
        }
        for lost in &self.lost {
            let file = lost.file.display();
            let offset = lost.offset;
            let why = &lost.why;
            lines.push(format!(
                "lost{}: {file}, offset {offset}: {why}",
                lost.records()
            ));
        }
        if !self.same_identity {
            lines.push(
                "its identity is lost: services and followers take the copy for another journal"
                    .to_owned(),
            );
        }
        if !self.complete {
            lines.push("stopped before the end".to_owned());
        }
        lines.join("\n")
    }
}
