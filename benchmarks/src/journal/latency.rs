//! How long a record takes from one process to another, when the writer does not wait for the reader.
//!
//! Record *i* is due at `start + i / rate`, whatever happened to those before it, and carries that moment: its latency
//! runs from then until the reader has it. So a stall of either process delays every record that was due meanwhile, and
//! shows.

use std::path::Path;

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options};

use super::figures::{Fault, Figures};
use super::player::{Player, wait};
use crate::scratch::Scratch;

pub(super) const RATE: u64 = 100_000;
pub(super) const RECORDS: u64 = 300_000;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let journal = Journal::open(scratch.path(), Options::default())?;
    let mut reader = journal.reader()?;
    let mut writer = Player::start(&["pace"], scratch.path(), &[RATE, RECORDS])?;
    writer.go()?;
    let mut histogram = Histogram::<u64>::new(3)?;
    let mut due = [0; 8];
    while histogram.len() < RECORDS {
        match reader.next()? {
            Some(record) => {
                due.copy_from_slice(&record.body[..8]);
                histogram.record(monotonic_ns().saturating_sub(u64::from_le_bytes(due)))?;
            }
            None => wait(&mut reader)?,
        }
    }
    writer.end()?;
    let name = "one-way latency, two processes, spinning, 100 k/s";
    percentiles(name, &histogram, figures, Some("0.4"));
    Ok(())
}

/// Rows for the percentiles of what was measured in ns; the median has an aim.
pub(super) fn percentiles(
    name: &str,
    histogram: &Histogram<u64>,
    figures: &mut Figures,
    aim: Option<&'static str>,
) {
    for (percentile, quantile, aim) in [
        ("p50", 0.5, aim),
        ("p99", 0.99, None),
        ("p99.9", 0.999, None),
    ] {
        let us = histogram.value_at_quantile(quantile) as f64 / 1e3;
        figures.add(&format!("{name}, {percentile}"), us, "us", aim);
    }
}
