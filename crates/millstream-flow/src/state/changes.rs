//! The states that changed in an epoch, written as records of the state journal.
//!
//! The bytes of a record are drawn in the module of the [checkpoint](crate::checkpoint)'s records.

use crate::key::SHARDS;
use crate::time::BEFORE_ALL;

/// The version of the records.
pub(crate) const VERSION: u8 = 1;
/// That of the records that a reader of version 1 does not know.
pub(crate) const VERSION_OF_WHOLE: u8 = 2;
/// The kind of a record of changes.
pub(crate) const STATE: u8 = 1;
/// The kind of a record that supersedes all earlier records of its step in its group.
pub(crate) const WHOLE: u8 = 5;
/// Shards are saved and rewritten in so many groups.
pub(crate) const GROUPS: usize = 16;
/// A record of state is ended once it has grown to this.
const RECORD_BYTES: usize = 256 << 10;
/// The tag of a key that was removed: it has no state.
pub const REMOVED: u8 = 0;

/// The group of a shard: neighbours are in different groups, as they are on different workers.
pub(crate) fn group_of(shard: usize) -> usize {
    shard % SHARDS % GROUPS
}

/// Entries of one step on their way to the journal, as records by group.
pub struct Changes {
    step: String,
    watermark: Option<i64>,
    open: Vec<Vec<u8>>,
    full: Vec<Vec<u8>>,
}

impl Changes {
    pub(crate) fn new(step: &str) -> Self {
        Changes {
            step: step.to_owned(),
            watermark: None,
            open: vec![Vec::new(); GROUPS],
            full: Vec::new(),
        }
    }

    /// The record to which an entry of `shard` is to be appended.
    fn record(&mut self, shard: usize) -> &mut Vec<u8> {
        let group = group_of(shard);
        let open = &mut self.open[group];
        if open.len() >= RECORD_BYTES {
            // The next one grows as far.
            let next = Vec::with_capacity(open.capacity());
            self.full.push(std::mem::replace(open, next));
        }
        if open.is_empty() {
            begin(open, [VERSION, STATE, group as u8], &self.step);
        }
        open
    }

    /// What is put from here on is all there is of the step on this worker: what was said before is void, and is not rewritten any
    /// more. Comes before all else; has no effect where a group of shards is divided among workers.
    pub fn begin_anew(&mut self, worker: usize, workers: usize) {
        if GROUPS.is_multiple_of(workers) {
            for group in (worker..GROUPS).step_by(workers) {
                let head = [VERSION_OF_WHOLE, WHOLE, group as u8];
                begin(&mut self.open[group], head, &self.step);
            }
        }
    }

    /// Appends a key that changed. `key` writes it as MessagePack, `state` writes its state and gives the
    /// tag of how it is written, or 0 when the key was removed. What fails leaves no trace.
    ///
    /// # Errors
    /// What `state` says.
    pub fn put<E>(
        &mut self,
        shard: usize,
        born: u64,
        key: impl FnOnce(&mut Vec<u8>),
        state: impl FnOnce(&mut Vec<u8>) -> Result<u8, E>,
    ) -> Result<(), E> {
        let out = self.record(shard);
        let start = out.len();
        out.extend([shard as u8, REMOVED]);
        out.extend(born.to_le_bytes());
        measured(out, key);
        let before = out.len();
        match measured(out, state) {
            Ok(REMOVED) => out.truncate(before),
            Ok(tag) => out[start + 1] = tag,
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes how far event time has come for the step; nanoseconds.
    pub fn come_to(&mut self, watermark: i64) {
        self.watermark = (watermark != BEFORE_ALL).then_some(watermark);
    }

    /// How far event time has come for the step, if it goes by event time.
    pub(crate) fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    /// The records.
    pub(crate) fn records(self) -> impl Iterator<Item = Vec<u8>> {
        let header = 5 + self.step.len().min(usize::from(u16::MAX));
        let open = self.open.into_iter();
        let open =
            open.filter(move |record| record.len() > header || record.get(1) == Some(&WHOLE));
        self.full.into_iter().chain(open)
    }
}

/// Begins a record of state.
fn begin(record: &mut Vec<u8>, head: [u8; 3], step: &str) {
    record.extend(head);
    // Names are a line of a program; a longer one is cut, and found again cut.
    let name = &step.as_bytes()[..step.len().min(usize::from(u16::MAX))];
    record.extend((name.len() as u16).to_le_bytes());
    record.extend(name);
}

/// Writes the length of what `write` appends before it.
fn measured<T>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let start = out.len();
    out.extend([0; 4]);
    let written = write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    written
}
