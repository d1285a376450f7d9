//! The records of a state journal, byte by byte.
//!
//! ```text
//! +---------+------+-------------------------------------------------------------+
//! | version | kind |                                                             |
//! +---------+------+-------------------------------------------------------------+
//!      1       1     state: group u8, length of name u16, name of the step, entries
//!              2     rebase: group u8; earlier records of this group are superseded
//!              3     drop: name of the step; earlier records of it are superseded
//!              4     commit: MessagePack; all before it counts
//!              5     whole: as state; earlier records of this step in this group are superseded
//!              6     prepared: as commit; it counts once a commit of its epoch and run follows
//!              7     fragment of a record: its place in the record u64, length of the record u64, bytes
//!
//! entry: place of the shard in its group, tag u8, born u64, length of key u32, key, [length of state u32, state]
//! ```
//!
//! The version is 1. A shard has the number `place * 16 + group`. The place has one byte below 128; else the first byte
//! has its low seven bits and bit 7, and a second byte the others. The position of a source in a commit is an integer,
//! or binary as [`Position::encode`] writes it.
//!
//! A record of more than 1 MiB is divided into fragments of 1 MiB each, the last of which may be shorter (see
//! [`fragments`](super::fragments)). Joined in order, their bytes are the record, with its own version and kind. A
//! journal may begin within a record, whose fragments do not count.
//!
//! Numbers are little-endian. The tag of an entry is 0 where the key was removed, 43 (`+`) where its bytes are appended
//! to the state in the last entry of the key before it, else the encoding of the state (see
//! [`codec`](crate::saved::codec)). Keys are MessagePack.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::stored_position;
use crate::cluster::CommitId;
use crate::input::InputId;
use crate::key::Shards;
use crate::saved::changes::{Changes, GROUPS, REMOVED, STATE, VERSION, WHOLE, shard_at};
use crate::source::Position;

const REBASE: u8 = 2;
const DROP: u8 = 3;
const COMMIT: u8 = 4;
const PREPARED: u8 = 6;
/// The position of a partition of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SourceMark {
    /// The name of the source.
    pub source: String,
    /// The name of the partition.
    pub partition: String,
    /// Its position.
    #[serde(with = "stored_position")]
    pub position: Position,
    /// True for a durable source: the position is that of a record of its input.
    pub recorded: bool,
    /// The process on whose machine the partition is, if each process reads what its machine has: another one may have
    /// a partition of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<usize>,
    /// What that machine had there at the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputId>,
}

impl SourceMark {
    /// Whether process `process` may read the partition; `None` in a run of one process.
    pub(crate) fn is_of(&self, process: Option<usize>) -> bool {
        self.local.is_none_or(|local| local == process.unwrap_or(0))
    }
}

/// The token that a sink has prepared on one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct SinkMark {
    /// The name of the sink.
    pub sink: String,
    /// The worker.
    pub worker: usize,
    /// The token, in the sink's own format.
    pub token: Vec<u8>,
    /// Whether process 0 writes the output of all processes. False in a run of one process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gathered: bool,
}

/// The event time of a step or of a partition of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct TimeMark {
    /// The name of a step that uses event time, or of a source whose items are assigned times.
    pub step: String,
    /// The partition of a source, followed by `#n` where times are assigned to it n + 1 times; empty for a
    /// step.
    pub partition: String,
    /// The watermark; nanoseconds.
    pub at: i64,
}

impl TimeMark {
    /// The event time of a step.
    pub(crate) fn of_step(step: String, at: i64) -> Self {
        TimeMark {
            step,
            partition: String::new(),
            at,
        }
    }
}

/// The kind of a step that has saved state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct StepMark {
    /// The name of the step.
    pub step: String,
    /// Its kind as the description of the flow shows it, with the details on which the state depends.
    pub kind: String,
    /// The names of the fields that it reads: those `of` its values, of their `keys` and `times`. What a function reads
    /// is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, BTreeSet<String>>,
    /// Of a join the names of sources and steps before each of its streams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<Vec<String>>,
    /// What surrounds the values in a state, from the outside; nothing where a state is one value.
    pub layout: Vec<String>,
}

/// The part of a state directory in the state of several processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Division {
    /// The id of the divided state, which all its directories have.
    pub cluster: u64,
    /// The run that appended the commit; each start of all processes has another one.
    pub run: u64,
    /// The number of the process.
    pub process: usize,
    /// The number of processes.
    pub processes: usize,
    /// The workers of each process.
    pub workers: usize,
    /// Process 0 only: the last commit in which each process had changes.
    pub members: Vec<CommitId>,
    /// The sources with the names of their partitions in this run, in the order in which workers read them; empty until
    /// the first run on a divided state, in which each directory has the positions of all partitions.
    pub partitions: Vec<(String, Vec<String>)>,
    /// The sources that process 0 alone reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_by_first: Vec<String>,
}

impl Division {
    /// The process that reads the partition with this number of a source.
    #[must_use]
    pub fn reader_of(&self, source: &str, partition: usize) -> usize {
        if self.read_by_first.iter().any(|name| name == source) {
            0
        } else {
            partition % (self.processes * self.workers).max(1) / self.workers.max(1)
        }
    }

    /// The partitions of a source in this run.
    pub(crate) fn partitions_of(&self, source: &str) -> &[String] {
        self.known_partitions(source).unwrap_or_default()
    }

    /// The same; `None` if the source was not in the flow.
    pub(crate) fn known_partitions(&self, source: &str) -> Option<&[String]> {
        let found = self.partitions.iter().find(|(of, _)| of == source);
        found.map(|(_, names)| &names[..])
    }

    /// The process that read a partition; `None` if the run did not begin with it.
    #[must_use]
    pub fn reader(&self, source: &str, partition: &str) -> Option<usize> {
        let mut names = self.partitions_of(source).iter();
        let number = names.position(|name| name == partition)?;
        Some(self.reader_of(source, number))
    }
}

/// The tokens that the sinks of a process had when a state was divided anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct OutputMarks {
    /// The number of the process; `None` for a run of one process, without a cluster.
    pub process: Option<usize>,
    /// Whether its state directory is one of this division, until the first run on it.
    pub kept: bool,
    /// The tokens.
    pub sinks: Vec<SinkMark>,
}

impl OutputMarks {
    /// Whether a process has the state directory of this one.
    pub(super) fn is_at(&self, process: Option<usize>) -> bool {
        self.kept && self.process.unwrap_or(0) == process.unwrap_or(0)
    }
}

/// The end of an epoch that is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Commit {
    /// The number of the epoch. Each is greater than the one before, except for the second commit of the last
    /// epoch: see `notify_pending`.
    pub epoch: u64,
    /// The number of workers of the run.
    pub workers: usize,
    /// The time of the commit; nanoseconds since 1970.
    pub time_ns: i64,
    /// True if the flow has finished.
    pub finished: bool,
    /// True if the flow has finished, and its sinks and sources may not have been notified of it. After they
    /// are notified, the same commit follows without this flag.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notify_pending: bool,
    /// The kinds of the steps that have state.
    pub steps: Vec<StepMark>,
    /// The positions of the sources.
    pub sources: Vec<SourceMark>,
    /// The tokens that the sinks have prepared.
    pub sinks: Vec<SinkMark>,
    /// The event times of steps and sources.
    pub watermarks: Vec<TimeMark>,
    /// The processing time; nanoseconds since 1970, 0 if no step uses it.
    pub processing_ns: i64,
    /// The name of the flow.
    pub flow: String,
    /// The part of this directory in the state of several processes; `None` in a run of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub division: Option<Division>,
    /// The tokens of sinks from before the state was divided among other processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<OutputMarks>,
    /// The number of shards into which keys are divided.
    pub shards: Shards,
}

impl Commit {
    /// Puts the mark of a writer of a sink in the place of an earlier one.
    pub(crate) fn put_sink(&mut self, mark: SinkMark) {
        let mut known = self.sinks.iter_mut();
        match known.find(|known| known.sink == mark.sink && known.worker == mark.worker) {
            Some(known) => *known = mark,
            None => self.sinks.push(mark),
        }
    }

    /// Puts the mark of a step in the place of an earlier one.
    pub(crate) fn put_step(&mut self, mark: StepMark) {
        match self.steps.iter_mut().find(|known| known.step == mark.step) {
            Some(known) => *known = mark,
            None => self.steps.push(mark),
        }
    }

    /// The run that appended it, in a run of several processes.
    pub(crate) fn run(&self) -> Option<u64> {
        self.division.as_ref().map(|division| division.run)
    }

    /// The positions of the partitions that this process may read. Process 0 also keeps those of machines that are
    /// gone.
    pub(crate) fn own_sources(&self) -> impl Iterator<Item = &SourceMark> {
        let process = self.division.as_ref().map(|division| division.process);
        self.sources.iter().filter(move |mark| mark.is_of(process))
    }

    /// Its name among those of several processes; of a run of one process the epoch alone.
    pub(crate) fn id(&self) -> CommitId {
        CommitId {
            epoch: self.epoch,
            run: self.run().unwrap_or(0),
        }
    }

    /// Sets processing time, and event times that are ahead of the clock, back to the clock.
    pub(crate) fn reset_clock(&mut self, time_ns: i64) {
        self.processing_ns = self.processing_ns.min(time_ns);
        for mark in &mut self.watermarks {
            mark.at = mark.at.min(time_ns);
        }
    }

    /// The same commit with the times of another one.
    pub(crate) fn at_the_times_of(&self, other: &Commit) -> Commit {
        Commit {
            watermarks: other.watermarks.clone(),
            processing_ns: other.processing_ns,
            ..self.clone()
        }
    }
}

/// A record in decoded form.
pub(crate) enum Record<'a> {
    State {
        group: usize,
        step: &'a str,
        entries: Entries<'a>,
        /// True if this record supersedes all earlier ones of the step in this group.
        whole: bool,
    },
    Rebase {
        group: usize,
    },
    Drop {
        step: &'a str,
    },
    Commit(Commit),
    Prepared(Commit),
}

/// One key of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) shard: usize,
    pub(crate) tag: u8,
    /// The creation number of the key: keys that are emitted in an order are emitted in the order of these
    /// numbers.
    pub(crate) born: u64,
    pub(crate) key: &'a [u8],
    pub(crate) state: &'a [u8],
}

impl Entry<'_> {
    /// Appends the entry as it was read.
    pub(crate) fn copy_to(&self, changes: &mut Changes) {
        changes.copy(self.shard, self.born, self.key, (self.tag, self.state));
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn take_u8(bytes: &mut &[u8]) -> Option<u8> {
    Some(take(bytes, 1)?[0])
}

fn take_u32(bytes: &mut &[u8]) -> Option<usize> {
    let word = take(bytes, 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(word) as usize)
}

fn take_place(bytes: &mut &[u8]) -> Option<usize> {
    let low = usize::from(take_u8(bytes)?);
    match low {
        0..0x80 => Some(low),
        _ => Some(low & 0x7f | usize::from(take_u8(bytes)?) << 7),
    }
}

impl<'a> Record<'a> {
    /// Decodes a record; an error says what is wrong with it.
    pub(crate) fn read(mut body: &'a [u8]) -> Result<Self, String> {
        let short = || "it is too short".to_owned();
        let rest = &mut body;
        let version = take_u8(rest).ok_or_else(short)?;
        if version != VERSION {
            return Err(format!("version {version}, this program reads {VERSION}"));
        }
        match take_u8(rest).ok_or_else(short)? {
            kind @ (STATE | WHOLE) => {
                let group = take_u8(rest).ok_or_else(short)? as usize;
                let length = take(rest, 2).ok_or_else(short)?;
                let length = u16::from_le_bytes([length[0], length[1]]) as usize;
                let step = take(rest, length).ok_or_else(short)?;
                let step = std::str::from_utf8(step).map_err(|error| error.to_string())?;
                if group < GROUPS {
                    Ok(Record::State {
                        group,
                        step,
                        entries: Entries { group, rest },
                        whole: kind == WHOLE,
                    })
                } else {
                    Err(format!("there is no group {group}"))
                }
            }
            REBASE => match take_u8(rest).map(usize::from) {
                Some(group) if group < GROUPS => Ok(Record::Rebase { group }),
                _ => Err("no such group".to_owned()),
            },
            DROP => {
                let step = std::str::from_utf8(rest).map_err(|error| error.to_string())?;
                Ok(Record::Drop { step })
            }
            COMMIT => rmp_serde::from_slice(rest)
                .map(Record::Commit)
                .map_err(|error| error.to_string()),
            PREPARED => rmp_serde::from_slice(rest)
                .map(Record::Prepared)
                .map_err(|error| error.to_string()),
            kind => Err(format!("there is no kind {kind}")),
        }
    }
}

/// Whether a record is a commit.
pub(crate) fn is_commit(body: &[u8]) -> bool {
    body.get(1) == Some(&COMMIT)
}

/// Whether a record prepares an epoch.
pub(crate) fn is_prepared(body: &[u8]) -> bool {
    body.get(1) == Some(&PREPARED)
}

/// Whether a commit is one of process 0, or of the only process.
pub(crate) fn is_of_process_0(body: &[u8]) -> Result<bool, String> {
    match Record::read(body)? {
        Record::Commit(commit) => Ok(commit.division.is_none_or(|division| division.process == 0)),
        _ => Ok(false),
    }
}

/// Encodes a record that supersedes the earlier records of a group.
pub(crate) fn rebase(group: usize) -> Vec<u8> {
    vec![VERSION, REBASE, group as u8]
}

/// Encodes a record that removes the state of a step.
pub(crate) fn drop_step(step: &str) -> Vec<u8> {
    [&[VERSION, DROP], step.as_bytes()].concat()
}

/// Encodes a record that commits all records before it.
pub(crate) fn commit(commit: &Commit) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    end(COMMIT, commit)
}

/// Encodes a record that prepares the records before it: they count once a commit of the same epoch and run follows.
pub(crate) fn prepared(commit: &Commit) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    end(PREPARED, commit)
}

/// Encodes the end of an epoch.
fn end(kind: u8, commit: &Commit) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let mut body = vec![VERSION, kind];
    rmp_serde::encode::write_named(&mut body, commit)?;
    Ok(body)
}

/// The entries of a state record.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    group: usize,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Option<Entry<'a>> {
        let rest = &mut self.rest;
        let shard = shard_at(self.group, take_place(rest)?);
        let tag = take_u8(rest)?;
        let born = u64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
        let length = take_u32(rest)?;
        let key = take(rest, length)?;
        let state = match tag {
            REMOVED => &[],
            _ => {
                let length = take_u32(rest)?;
                take(rest, length)?
            }
        };
        Some(Entry {
            shard,
            tag,
            born,
            key,
            state,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry.ok_or_else(|| "an entry is truncated".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_read_as_it_was_written() {
        let mark = |position| SourceMark {
            source: "in".to_owned(),
            partition: "0".to_owned(),
            position,
            recorded: false,
            local: Some(2),
            input: None,
        };
        let ended = Commit {
            epoch: 7,
            finished: true,
            notify_pending: true,
            sources: vec![
                mark(Position::from(u64::MAX)),
                mark(Position::bytes(3, vec![9])),
            ],
            shards: Shards::new(Shards::MAX).expect("it is a power of two"),
            ..Commit::default()
        };
        for commit in [&ended, &Commit::default()] {
            let written = super::commit(commit).expect("it is written");
            let read = Record::read(&written);
            assert!(matches!(read, Ok(Record::Commit(read)) if read == *commit));
        }
    }

    #[test]
    fn another_version_is_an_error() {
        for version in [0, VERSION + 1] {
            let said = Record::read(&[version, DROP]).err();
            let expected = format!("version {version}, this program reads 1");
            assert_eq!(said, Some(expected));
        }
    }

    #[test]
    fn entries_are_read_by_group() {
        // A place from 128 on has two bytes.
        for count in [256, 2048, 4096, Shards::MAX] {
            entries_are_read(Shards::new(count).unwrap());
        }
    }

    fn entries_are_read(shards: Shards) {
        let far = shards.count() - 256 + 19;
        let mut changes = Changes::new("count", shards);
        for shard in [3usize, far, 4] {
            let put = changes.put(
                shard,
                shard as u64,
                |out| out.extend(format!("key {shard}").as_bytes()),
                |out| {
                    out.extend([7; 3]);
                    Ok(1)
                },
            );
            put.expect("it is written");
        }
        let failed = changes.put(3, 9, |out| out.push(1), |_| Err("no".into()));
        assert_eq!(failed.expect_err("it fails").to_string(), "no");
        let removed = changes.put(4, 5, |out| out.push(1), |_| Ok(REMOVED));
        removed.expect("it is written");
        let records: Vec<_> = changes.records().collect();
        assert_eq!(records.len(), 2);
        let Ok(Record::State {
            group,
            step,
            entries,
            ..
        }) = Record::read(&records[0])
        else {
            panic!("it is a record of state");
        };
        assert_eq!((group, step), (3, "count"));
        let read: Vec<_> = entries.map(|entry| entry.expect("whole")).collect();
        assert_eq!((read[0].shard, read[1].shard), (3, far));
        assert_eq!(
            (read[1].key, read[1].state),
            (format!("key {far}").as_bytes(), &[7, 7, 7][..])
        );
        let Ok(Record::State { entries, .. }) = Record::read(&records[1]) else {
            panic!("it is a record of state");
        };
        let read: Vec<_> = entries.map(|entry| entry.expect("whole")).collect();
        assert_eq!((read[1].tag, read[1].state), (REMOVED, &b""[..]));
        // Cut at any length, a record is an error or has fewer entries; nothing panics.
        for cut in 0..records[0].len() {
            if let Ok(Record::State { entries, .. }) = Record::read(&records[0][..cut]) {
                assert!(entries.filter(Result::is_ok).count() < 2);
            }
        }
    }
}
