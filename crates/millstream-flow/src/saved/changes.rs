//! The states that changed in an epoch, encoded as records of the state journal.
//!
//! The bytes of a record are drawn in the module of the [checkpoint](crate::checkpoint)'s records.

use super::codec::StateCodec;
use crate::error::Cause;
use crate::key::Shards;
use crate::time::BEFORE_ALL;

/// The version of the records.
pub(crate) const VERSION: u8 = 1;
/// The kind of a record of changes.
pub(crate) const STATE: u8 = 1;
/// The kind of a record that supersedes all earlier records of its step in its group.
pub(crate) const WHOLE: u8 = 5;
/// The number of groups in which shards are saved and rewritten.
pub(crate) const GROUPS: usize = 16;
/// The size at which a record of state is closed.
const RECORD_BYTES: usize = 256 << 10;
/// The tag of a key that was removed: it has no state.
#[doc(hidden)] // For the other crates of Millstream.
pub const REMOVED: u8 = 0;
/// The tag of an entry whose bytes follow those that the key had before.
pub(crate) const ADDED: u8 = b'+';
/// The largest state that is saved, in bytes, with its key.
const STATE_BYTES_MAX: usize = 1 << 30;

/// Checks the size of a state with its key.
pub(crate) fn check_size(bytes: usize) -> Result<(), Cause> {
    if bytes > STATE_BYTES_MAX {
        Err(format!(
            "its state has {bytes} bytes, and at most {STATE_BYTES_MAX} can be saved of one key; use more keys, or retain less \
             for each by a ttl or by shorter windows or lists"
        )
        .into())
    } else {
        Ok(())
    }
}

/// Returns the group of a shard: neighbours are in different groups, as they are on different workers.
pub(crate) fn group_of(shard: usize) -> usize {
    shard % GROUPS
}

/// Returns the place of a shard in its group.
fn place_in_group(shard: usize) -> usize {
    shard / GROUPS
}

/// Returns the shard at a place in a group.
pub(crate) fn shard_at(group: usize, place: usize) -> usize {
    place * GROUPS + group
}

/// Appends a place in a group, below 2^14: the low seven bits, with bit 7 set if a second byte with the high bits
/// follows.
fn put_place(place: usize, out: &mut Vec<u8>) {
    match place {
        0..0x80 => out.push(place as u8),
        _ => out.extend([place as u8 | 0x80, (place >> 7) as u8]),
    }
}

/// Entries of one step for the journal, as records by group.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Changes {
    step: String,
    shards: Shards,
    watermark: Option<i64>,
    layout: Vec<&'static str>,
    open: Vec<Vec<u8>>,
    full: Vec<Vec<u8>>,
}

impl Changes {
    pub(crate) fn new(step: &str, shards: Shards) -> Self {
        Changes {
            step: step.to_owned(),
            shards,
            watermark: None,
            layout: Vec::new(),
            open: vec![Vec::new(); GROUPS],
            full: Vec::new(),
        }
    }

    /// The shards into which keys are divided.
    #[must_use]
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// Returns the record to which an entry of `shard` is appended.
    fn record(&mut self, shard: usize) -> &mut Vec<u8> {
        let group = group_of(shard);
        let open = &mut self.open[group];
        if open.len() >= RECORD_BYTES {
            // The next record grows to the same size.
            let next = Vec::with_capacity(open.capacity());
            self.full.push(std::mem::replace(open, next));
        }
        if open.is_empty() {
            begin(open, [VERSION, STATE, group as u8], &self.step);
        }
        open
    }

    /// Makes the following entries the complete state of the step on this worker: earlier records are
    /// superseded, and are not rewritten any more. It must be the first call; it has no effect if a group of
    /// shards is divided among workers.
    pub fn supersede(&mut self, worker: usize, workers: usize) {
        if GROUPS.is_multiple_of(workers) {
            for group in (worker..GROUPS).step_by(workers) {
                let head = [VERSION, WHOLE, group as u8];
                begin(&mut self.open[group], head, &self.step);
            }
        }
    }

    /// Appends a key that changed. `key` appends it as MessagePack; `state` appends its state and returns the
    /// tag of its encoding, or 0 if the key was removed. If it fails, nothing is appended.
    ///
    /// # Errors
    /// The error of `state`; a state of more than 1 GiB with its key.
    pub fn put(
        &mut self,
        shard: usize,
        born: u64,
        key: impl FnOnce(&mut Vec<u8>),
        state: impl FnOnce(&mut Vec<u8>) -> Result<u8, Cause>,
    ) -> Result<(), Cause> {
        let out = self.record(shard);
        let start = out.len();
        put_place(place_in_group(shard), out);
        let tag_at = out.len();
        out.push(REMOVED);
        out.extend(born.to_le_bytes());
        measured(out, key);
        let before = out.len();
        let tag = measured(out, state);
        let bytes = out.len() - start;
        match tag.and_then(|tag| check_size(bytes).map(|()| tag)) {
            Ok(REMOVED) => out.truncate(before),
            Ok(tag) => out[tag_at] = tag,
            Err(error) => {
                out.truncate(start);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Appends a key as it was saved, with the tag of its state and the state.
    pub(crate) fn copy(&mut self, shard: usize, born: u64, key: &[u8], (tag, state): (u8, &[u8])) {
        let out = self.record(shard);
        put_place(place_in_group(shard), out);
        out.push(tag);
        out.extend(born.to_le_bytes());
        measured(out, |out| out.extend(key));
        if tag != REMOVED {
            measured(out, |out| out.extend(state));
        }
    }

    /// Sets the event time of the step; nanoseconds.
    pub fn set_watermark(&mut self, watermark: i64) {
        self.watermark = (watermark != BEFORE_ALL).then_some(watermark);
    }

    /// Sets what surrounds the values in the states.
    pub(crate) fn set_layout<S>(&mut self, codec: &dyn StateCodec<S>) {
        codec.layout(&mut self.layout);
    }

    /// Returns what surrounds the values in the states.
    pub(crate) fn take_layout(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.layout)
    }

    /// Returns the event time of the step, if it uses event time.
    pub(crate) fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    /// Returns the records.
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
    // Names are short texts in a program; a longer one is truncated, in the same way when it is looked up.
    let name = &step.as_bytes()[..step.len().min(usize::from(u16::MAX))];
    record.extend((name.len() as u16).to_le_bytes());
    record.extend(name);
}

/// Appends the output of `write`, preceded by its length.
fn measured<T>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let start = out.len();
    out.extend([0; 4]);
    let written = write(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_is_too_large_is_an_error_and_not_appended() {
        let mut changes = Changes::new("step", Shards::default());
        let key = |out: &mut Vec<u8>| out.push(7);
        let large = |out: &mut Vec<u8>| {
            // Memory that is never touched.
            *out = vec![0; out.len() + STATE_BYTES_MAX];
            Ok(1)
        };
        let put = changes.put(3, 0, key, large);
        let text = put.expect_err("it is too large").to_string();
        assert!(text.contains("at most 1073741824"), "{text}");
        assert_eq!(changes.records().count(), 0);
    }
}
