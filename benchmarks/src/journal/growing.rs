//! Segments that grow, beside segments of one size: appending small records while the segments are small, and once they
//! are large.
//!
//! The two take turns, and the one that begins changes with each run. The ratio of each run is a row of its own:
//! growing to fixed.

use std::hint::black_box;
use std::path::Path;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options};
use millstream_queue::storage::{JournalLog, Log};

use super::figures::{BODY, Fault, Figures};
use super::speed::per_second;
use crate::scratch::Scratch;

/// The first records, in segments that grow.
const FIRST: u64 = 100_000;
/// Those that follow, in segments of the full size.
const LATER: u64 = 3_000_000;
const GROWING_FROM: u64 = 16 << 10;
/// The segments of a queue with the default limit on items.
const QUEUE_BYTES: u64 = 16 << 20;

/// What appends: the writer of a journal, or the log of a queue over it.
#[derive(Clone, Copy)]
enum Writes {
    Journal,
    Queue,
}

/// Records a second, of the first and of the later ones.
type Rates = [f64; 2];

pub(super) fn run(folder: &Path, run: u32, figures: &mut Figures) -> Result<(), Fault> {
    for (what, writes) in [
        ("a journal", Writes::Journal),
        ("the log of a queue", Writes::Queue),
    ] {
        let (fixed, growing) = if run.is_multiple_of(2) {
            let fixed = rates(folder, writes, None)?;
            (fixed, rates(folder, writes, Some(GROWING_FROM))?)
        } else {
            let growing = rates(folder, writes, Some(GROWING_FROM))?;
            (rates(folder, writes, None)?, growing)
        };
        for (at, part) in ["the first 100,000", "3 M later ones"].iter().enumerate() {
            let name = format!("{what}, {part}: ");
            let millions = |rate: f64| rate / 1e6;
            figures.add(&(name.clone() + "fixed"), millions(fixed[at]), "M/s", None);
            figures.add(
                &(name.clone() + "growing"),
                millions(growing[at]),
                "M/s",
                None,
            );
            figures.add(&(name + "ratio"), growing[at] / fixed[at], "", None);
        }
    }
    Ok(())
}

fn rates(folder: &Path, writes: Writes, segment_bytes_first: Option<u64>) -> Result<Rates, Fault> {
    let scratch = Scratch::new(folder)?;
    let defaults = Options::default();
    let options = Options {
        exclusive: true,
        segment_bytes_first,
        segment_bytes: match writes {
            Writes::Journal => defaults.segment_bytes,
            Writes::Queue => QUEUE_BYTES,
        },
        record_bytes_max: 1 << 20,
        ..defaults
    };
    let journal = Journal::open(scratch.path(), options)?;
    match writes {
        Writes::Journal => {
            let writer = journal.writer()?;
            measure(|| Ok(writer.append(black_box(&BODY)).map(drop)?))
        }
        Writes::Queue => {
            let mut log = JournalLog::over(journal)?;
            measure(|| log.append(black_box(&BODY)).map(drop))
        }
    }
}

fn measure(mut append: impl FnMut() -> Result<(), Fault>) -> Result<Rates, Fault> {
    let mut rates = [0.0; 2];
    for (rate, records) in rates.iter_mut().zip([FIRST, LATER]) {
        let start = monotonic_ns();
        for _ in 0..records {
            append()?;
        }
        *rate = per_second(records, start);
    }
    Ok(rates)
}
