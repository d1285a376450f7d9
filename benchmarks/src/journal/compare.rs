//! The same work done by journals and by the usual alternatives, in turns.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use millstream_journal::chain;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options, Sync};

use super::durable;
use super::figures::{BODY, Fault, Figures};
use super::fjall::Fjall;
use super::peer::{Peer, Work};
use super::python::script;
use super::speed::per_second;
use crate::scratch::Scratch;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let peers: [&dyn Peer; 4] = [&Ours, &PlainFile, &Sqlite, &Fjall];
    for work in Work::ALL {
        for peer in peers {
            let scratch = Scratch::new(folder)?;
            match peer.measure(work, scratch.path()) {
                Ok(rate) => {
                    let name = format!("{}: {}", work.describe(), peer.name());
                    figures.add(&name, rate, "/s", None);
                }
                Err(why) => figures.miss(format!("{}: {}", peer.name(), chain(&*why))),
            }
        }
    }
    Ok(())
}

struct Ours;

impl Peer for Ours {
    fn name(&self) -> &str {
        "Millstream journal"
    }

    fn measure(&self, work: Work, folder: &Path) -> Result<f64, Fault> {
        let sync = match work {
            Work::Durable => Sync::Always,
            _ => Sync::Never,
        };
        let journal = Journal::open(folder, Options::default().with_sync(sync))?;
        let writer = journal.writer()?;
        let batch = [BODY; 1_000];
        if work == Work::Read {
            for _ in 0..work.count() / 1_000 {
                writer.append_many(batch)?;
            }
        }
        let start = monotonic_ns();
        match work {
            Work::Append | Work::Durable => {
                for _ in 0..work.count() {
                    writer.append(&BODY)?;
                }
            }
            Work::Batches => {
                for _ in 0..work.count() / 1_000 {
                    writer.append_many(batch)?;
                }
            }
            Work::Read => {
                let mut reader = journal.reader()?;
                let mut seen = 0;
                while let Some(record) = reader.next()? {
                    seen += u64::from(record.body == BODY);
                }
                if seen != work.count() {
                    return Err("records are missing".into());
                }
            }
        }
        Ok(per_second(work.count(), start))
    }
}

/// Bodies of 64 bytes one after the other, a `write` for each append; no checksum, no number, no time, one process.
struct PlainFile;

impl Peer for PlainFile {
    fn name(&self) -> &str {
        "plain file"
    }

    fn measure(&self, work: Work, folder: &Path) -> Result<f64, Fault> {
        if work == Work::Durable {
            return durable::write_and_sync(folder);
        }
        let path = folder.join("plain");
        let mut file = File::create(&path)?;
        let batch = BODY.repeat(1_000);
        if work == Work::Read {
            for _ in 0..work.count() / 1_000 {
                file.write_all(&batch)?;
            }
        }
        let start = monotonic_ns();
        match work {
            Work::Append | Work::Durable => {
                for _ in 0..work.count() {
                    file.write_all(&BODY)?;
                }
            }
            Work::Batches => {
                for _ in 0..work.count() / 1_000 {
                    file.write_all(&batch)?;
                }
            }
            Work::Read => {
                let mut file = BufReader::with_capacity(256 << 10, File::open(&path)?);
                let mut body = BODY;
                for _ in 0..work.count() {
                    file.read_exact(&mut body)?;
                    if body != BODY {
                        return Err("records are missing".into());
                    }
                }
            }
        }
        Ok(per_second(work.count(), start))
    }
}

/// SQLite in WAL mode, through the module of Python.
struct Sqlite;

impl Peer for Sqlite {
    fn name(&self) -> &str {
        "SQLite WAL, from Python"
    }

    fn measure(&self, work: Work, folder: &Path) -> Result<f64, Fault> {
        let count = work.count().to_string();
        let folder = folder.to_string_lossy();
        let args = [work.name(), &folder, &count];
        let rate = script("sqlite", &args)?;
        rate.as_f64().ok_or_else(|| "no number".into())
    }
}
