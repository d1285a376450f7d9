//! One process: appending and reading back.

use std::hint::black_box;
use std::path::Path;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options};

use super::figures::{BODY, Fault, Figures};
use crate::scratch::Scratch;

const RECORDS: u64 = 5_000_000;
const BATCH: usize = 1_000;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let journal = Journal::open(scratch.path(), Options::default())?;
    let writer = journal.writer()?;
    let start = monotonic_ns();
    for _ in 0..RECORDS {
        writer.append(black_box(&BODY))?;
    }
    let rate = per_second(RECORDS, start);
    figures.add(
        "append 64 B, one thread, in the benchmark's process",
        rate / 1e6,
        "M/s",
        None,
    );
    let batch = [BODY; BATCH];
    let start = monotonic_ns();
    for _ in 0..RECORDS / BATCH as u64 {
        writer.append_many(black_box(&batch))?;
    }
    let rate = per_second(RECORDS, start);
    figures.add("append 64 B in batches of 1,000", rate / 1e6, "M/s", None);
    Ok(())
}

/// So many in the time from `start` to now.
pub(super) fn per_second(count: u64, start_ns: u64) -> f64 {
    count as f64 * 1e9 / (monotonic_ns() - start_ns) as f64
}
