//! Reading recorded input: the batches of a durable source, of all its partitions or of one.

use std::path::Path;

use millstream_journal::{Journal, Options, PinnedRecord, Reader};

use super::record::RecordedBatch;
use crate::error::Cause;

/// A reader of recorded input. It may be used while a flow records.
pub struct Recorded {
    reader: Reader,
    /// The number of the first record that is not read.
    end: u64,
    /// The time from which on nothing is read, if there is one.
    end_ns: Option<u64>,
    partition: Option<String>,
    current: Option<PinnedRecord>,
}

impl Recorded {
    /// Opens the journal in the directory `path`, `STATE/inputs/NAME`, to be read from the oldest record that is kept
    /// to the end as it is now. See [`recorded_input_dir`](super::recorded_input_dir) and [`inputs`](super::inputs).
    ///
    /// # Errors
    /// There is no journal, or it is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Cause> {
        Self::of(&Journal::open(path, Options::read_only())?)
    }

    pub(super) fn of(journal: &Journal) -> Result<Self, Cause> {
        Ok(Recorded {
            reader: journal.reader()?,
            end: journal.next()?,
            end_ns: None,
            partition: None,
            current: None,
        })
    }

    /// Goes to the record of this number.
    ///
    /// # Errors
    /// It is no longer there, or not yet.
    pub fn seek(&mut self, sequence: u64) -> Result<(), Cause> {
        Ok(self.reader.seek(sequence)?)
    }

    /// Goes to the first record of this time (nanoseconds since 1970) or later.
    ///
    /// # Errors
    /// A damaged journal.
    pub fn seek_time(&mut self, time_ns: u64) -> Result<(), Cause> {
        Ok(self.reader.seek_time(time_ns)?)
    }

    /// Ends before the record of this number.
    #[must_use]
    pub fn to_sequence(mut self, sequence: u64) -> Self {
        self.end = self.end.min(sequence);
        self
    }

    /// Ends before the first record of this time (nanoseconds since 1970) or later.
    #[must_use]
    pub fn to_time(mut self, time_ns: u64) -> Self {
        self.end_ns = Some(time_ns);
        self
    }

    /// Gives the batches of one partition only.
    #[must_use]
    pub fn partition(mut self, name: &str) -> Self {
        self.partition = Some(name.to_owned());
        self
    }

    /// The number of the record that is looked at next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// Damage, or a record that is no recorded input; it is named.
    pub fn next_batch(&mut self) -> Result<Option<RecordedBatch<'_>>, Cause> {
        self.current = None;
        while self.current.is_none() && self.reader.position() < self.end {
            let Some(record) = self.reader.next_pinned()? else {
                break;
            };
            if self.end_ns.is_some_and(|end| record.time_ns() >= end) {
                self.end = record.sequence();
            } else if self.wants(read(&record)?.partition) {
                self.current = Some(record);
            }
        }
        self.current.as_ref().map(read).transpose()
    }

    fn wants(&self, partition: &str) -> bool {
        self.partition
            .as_deref()
            .is_none_or(|only| only == partition)
    }
}

fn read(record: &PinnedRecord) -> Result<RecordedBatch<'_>, Cause> {
    let sequence = record.sequence();
    RecordedBatch::read(sequence, record.time_ns(), record.body())
        .map_err(|what| format!("record {sequence} is no recorded input: {what}").into())
}
