//! Reading everything again: verifying, reopening, replaying.

use std::path::Path;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Host, Journal, Options};

use super::figures::{BODY, Fault, Figures};
use super::speed::per_second;
use crate::scratch::Scratch;

const REPLAYED_BYTES: u64 = 500_000_000;
/// A header of 16 bytes, and the body.
const FRAME_BYTES: u64 = 80;

/// A large journal, made once for all runs.
pub(super) struct Large {
    scratch: Scratch,
    gib: u64,
}

impl Large {
    pub(super) fn make(folder: &Path, gib: u64) -> Result<Self, Fault> {
        let scratch = Scratch::new(folder)?;
        let journal = Journal::open(scratch.path(), Options::default())?;
        let writer = journal.writer()?;
        let body = vec![b'x'; (1 << 20) - 16];
        for _ in 0..gib << 10 {
            writer.append(&body)?;
        }
        journal.sync()?;
        Ok(Large { scratch, gib })
    }
}

pub(super) fn run(folder: &Path, large: &Large, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let journal = Journal::open(scratch.path(), Options::default())?;
    let records = REPLAYED_BYTES / FRAME_BYTES;
    let batch = [BODY; 1_000];
    let writer = journal.writer()?;
    for _ in 0..records / 1_000 {
        writer.append_many(batch)?;
    }
    let start = monotonic_ns();
    let found = Journal::verify(scratch.path())?;
    let rate = per_second(found.bytes, start);
    figures.add("verify, 64 B records", rate / 1e9, "GB/s", None);
    let start = monotonic_ns();
    let found = Journal::verify(large.scratch.path())?;
    let rate = per_second(found.bytes, start);
    figures.add("verify, 1 MiB records", rate / 1e9, "GB/s", Some("2"));

    let start = monotonic_ns();
    let mut reader = journal.reader()?;
    let mut sum = 0_u64;
    while let Some(record) = reader.next()? {
        sum += record.body.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    let seconds = (monotonic_ns() - start) as f64 / 1e9;
    if sum != records / 1_000 * 1_000 * 64 * u64::from(b'x') {
        return Err("what was replayed is not what was appended".into());
    }
    figures.add(
        "replay of 500 MB of 64 B records, every body read",
        seconds,
        "s",
        Some("1"),
    );

    // Once as after the end of all processes, once as after a loss of power: then the machine has another boot.
    for (what, host) in [
        ("", Host::real()),
        (", as after a loss of power", Host::real().with_boot(0)),
    ] {
        let start = monotonic_ns();
        let journal = Journal::open(
            large.scratch.path(),
            Options {
                create: false,
                host,
                ..Options::default()
            },
        )?;
        let mut reader = journal.reader()?;
        reader.seek(journal.next()? - 1)?;
        reader.next()?.ok_or("the last record is not there")?;
        let ms = (monotonic_ns() - start) as f64 / 1e6;
        let name = format!("reopen {} GiB, read the last record{what}", large.gib);
        figures.add(&name, ms, "ms", Some("100"));
    }
    Ok(())
}
