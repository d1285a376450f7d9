//! Which records of a journal are meant.

use std::ops::Range;

use millstream_journal::{Journal, Record};

use crate::moment::{self, Moment};
use crate::outcome::{End, Outcome};
use crate::stop::Stop;

/// The options that choose records.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Choice {
    /// Begin with this sequence number.
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// End before this sequence number.
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// Begin with the first record of this time or later: 2026-11-21T16:42:40Z, a date (UTC), how long ago ("10m", "2
    /// hours ago"), or "yesterday 14:00", "monday" in the time zone of this machine.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    since: Option<Moment>,
    /// End after the last record before this time.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<Moment>,
    /// End after this many records.
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

impl Choice {
    /// The sequence numbers that are chosen, as far as they have been written.
    pub(super) fn of(&self, journal: &Journal) -> Outcome<Range<u64>> {
        let mut reader = journal.reader()?;
        let mut start = reader.position();
        let mut end = journal.next()?;
        if let Some(from) = self.from {
            // One that is not there is an error, which names what is.
            reader.seek(from)?;
            start = from;
        }
        if let Some(since) = &self.since {
            since.explain("--since");
            reader.seek_time(since.time_ns)?;
            start = start.max(reader.position());
        }
        if let Some(until) = &self.until {
            until.explain("--until");
            reader.seek_time_end(until.time_ns)?;
            end = end.min(reader.position());
        }
        end = end.min(self.to.unwrap_or(u64::MAX));
        end = end.min(start.saturating_add(self.count.unwrap_or(u64::MAX)));
        Ok(start..end.max(start))
    }
}

/// Passes each record of `range` to `take`, until the end or a signal. Returns the next sequence number.
pub(super) fn each(
    journal: &Journal,
    range: Range<u64>,
    stop: &Stop,
    mut take: impl FnMut(Record<'_>) -> Outcome,
) -> Outcome<u64> {
    let mut reader = journal.reader()?;
    reader.seek(range.start)?;
    while reader.position() < range.end && !stop.requested() {
        let position = reader.position();
        match reader.next()? {
            Some(record) => take(record)?,
            // All of the range had been written when it was chosen.
            None => {
                return Err(End::from(format!(
                    "record {position} is not there any more"
                )));
            }
        }
    }
    Ok(reader.position())
}
