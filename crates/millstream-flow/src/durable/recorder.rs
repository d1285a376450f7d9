//! The journal of a durable source in a run: appending, replay after a crash, pruning.
//!
//! The position of a partition is the number of its last processed record. That record is never pruned, as it has the
//! position of the source itself. A partition that is quiet while others are not writes a record without frames from
//! time to time, so that the journal can be pruned. The first record of each partition has no frames either: it exists
//! before any input is processed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Cursor, CursorMode, Journal, Options, Retention, Sync, Writer};

use super::directory::{Retain, recorded_input_dir};
use super::input_position::InputPosition;
use super::record::Head;
use super::recorded::Recorded;
use crate::batch::Kind;
use crate::error::{Cause, context};
use crate::framing::Frames;
use crate::mutex::lock;
use crate::named::{DROP_STATE, STATE};
use crate::source::{Beginning, Position, Recording};

/// The size of a segment, and about that of the largest batch that can be recorded.
const SEGMENT_BYTES: u64 = 32 << 20;
/// The number of later records after which the end of a partition is recorded again, so that the journal can be pruned.
const END_RECORDS: u64 = 1024;
/// The cursor at the oldest record that is needed.
const NEEDED: &str = "needed";

/// Records the input of a source, for all its partitions.
pub(super) struct Recorder {
    writer: Writer,
    needed: Cursor,
    keep: Retain,
    partitions: Vec<String>,
    /// Whether positions of the last commit are those of records, not the source's own.
    resumes: bool,
    /// Whether the flow had come to its end: partitions that have ended are then read again.
    had_ended: bool,
    /// The partitions that have ended, by name.
    ends: Mutex<BTreeMap<String, End>>,
    began_ns: i64,
}

/// The end of a partition.
#[derive(Clone, Debug)]
struct End {
    /// The record of the end.
    sequence: u64,
    /// The source's own position, if it is known.
    position: Option<Position>,
}

/// Where a partition resumes when a run begins.
pub(super) struct Start {
    /// The records that the run processes before it reads the source.
    pub(super) replay: Recorded,
    /// Its position in the recorded input.
    pub(super) at: InputPosition,
    /// The source's own position after its last record, if it is known.
    pub(super) position: Option<Position>,
    /// True if that was the end of the partition.
    pub(super) ended: bool,
}

impl Recorder {
    pub(super) fn begin(
        run: &Beginning<'_>,
        keep: Retain,
        partitions: Vec<String>,
    ) -> Result<Self, Cause> {
        let state_dir = run.state_dir.ok_or_else(|| {
            format!("it is durable, and needs a directory for its state: {STATE}")
        })?;
        let path = recorded_input_dir(state_dir, run.source);
        if run.forget && path.exists() {
            std::fs::remove_dir_all(&path).map_err(|error| context(path.display(), error))?;
        }
        let recorded = input_positions(run.recorded)?;
        let gone = recorded.iter().find(|(name, at)| {
            matches!(at, InputPosition::Record(_)) && !partitions.iter().any(|ours| ours == name)
        });
        if let Some((name, _)) = gone {
            return Err(format!(
                "{}: input of its partition \"{name}\" was recorded, and the source no longer has that partition; restore it, or drop the \
                 saved state of the source ({DROP_STATE})",
                path.display()
            )
            .into());
        }
        let options = Options {
            exclusive: true,
            record_bytes_max: SEGMENT_BYTES as u32,
            ..Options::default().with_segment_bytes(SEGMENT_BYTES)
        };
        let sync = if run.sync { Sync::Always } else { Sync::Never };
        create_dir_durably(&path).map_err(|error| context(path.display(), error))?;
        let journal = Journal::open(&path, options.with_sync(sync))?;
        let ends = find_ends(&journal, &recorded)?;
        Ok(Recorder {
            writer: journal.writer()?,
            needed: journal.cursor(NEEDED, CursorMode::Exclusive)?,
            keep,
            partitions,
            resumes: !run.recorded.is_empty(),
            had_ended: run.had_ended,
            ends: Mutex::new(ends),
            began_ns: run.time_ns,
        })
    }

    fn path(&self) -> PathBuf {
        self.writer.journal().path()
    }

    pub(super) fn partition(&self, index: usize) -> &str {
        &self.partitions[index]
    }

    /// Appends a batch, with `scratch` as its buffer, and waits until it is as durable as the options require.
    pub(super) fn record(
        &self,
        head: &Head<'_>,
        frames: &Frames,
        time_ns: i64,
        scratch: &mut Vec<u8>,
    ) -> Result<u64, Cause> {
        scratch.clear();
        head.write(frames, scratch)?;
        let sequence = self.writer.append_at(time_ns.max(0) as u64, scratch)?;
        if head.ended {
            let position = head.position.cloned();
            let end = End { sequence, position };
            lock(&self.ends).insert(head.partition.to_owned(), end);
        }
        Ok(sequence)
    }

    /// The oldest record of an end of a partition. Ends far before the newest record are recorded again first.
    fn oldest_end(&self) -> Result<Option<u64>, Cause> {
        let ends = lock(&self.ends).clone();
        let mut oldest = None;
        for (name, end) in ends {
            let mut sequence = end.sequence;
            if self.next()? > sequence + END_RECORDS {
                sequence = self.end_partition(&name, end.position.as_ref())?;
            }
            oldest = Some(oldest.map_or(sequence, |oldest: u64| oldest.min(sequence)));
        }
        Ok(oldest)
    }

    /// The number of the next record.
    pub(super) fn next(&self) -> Result<u64, Cause> {
        Ok(self.writer.journal().next()?)
    }

    /// Returns where a partition resumes. `resume` is its position at the last commit: in its recorded input, or the
    /// source's own if it was not durable then.
    pub(super) fn resume(&self, index: usize, resume: Option<&Position>) -> Result<Start, Cause> {
        let name = self.partition(index);
        let journal = self.writer.journal();
        let committed = resume.filter(|_| self.resumes);
        let committed = committed.map(InputPosition::of).transpose()?;
        let next = journal.next()?;
        self.check_end(committed, next)?;
        let open = || Ok::<_, Cause>(Recorded::of(journal)?.partition(name));
        let mut start = Start {
            replay: open()?,
            at: InputPosition::Record(next),
            position: resume.filter(|_| !self.resumes).cloned(),
            ended: false,
        };
        let mut all = open()?;
        let end = lock(&self.ends).get(name).map(|end| end.sequence);
        let committed = match (committed, end) {
            (None, _) => None,
            (Some(InputPosition::Record(sequence)), _) => Some(sequence),
            (Some(InputPosition::End(_)), Some(end)) if self.had_ended => Some(end),
            (Some(InputPosition::End(_)), end) => {
                start.ended = true;
                start.at = InputPosition::End(end);
                start.replay.seek(next)?;
                return Ok(start);
            }
        };
        if let Some(sequence) = committed {
            all.seek(sequence)?;
            start.replay.seek(sequence + 1)?;
        }
        let mut found = None;
        let mut last = next;
        while let Some(batch) = all.next_batch()? {
            found.get_or_insert((batch.sequence, batch.items().len()));
            start.position = batch.position();
            start.ended = batch.ended;
            last = batch.sequence;
        }
        match (found, committed) {
            (Some((first, _)), Some(sequence)) if first == sequence => {
                start.at = InputPosition::Record(first);
            }
            // The first record of a partition has no frames: it counts as processed.
            (Some((first, 0)), None) => start.at = InputPosition::Record(first),
            (None, None) => {
                let first = self.begin_partition(name, start.position.as_ref())?;
                start.at = InputPosition::Record(first);
            }
            (_, wanted) => {
                return Err(format!(
                    "{}: record {} is not one of partition \"{name}\", which should begin there",
                    self.path().display(),
                    wanted.map_or(journal.first()?, |sequence| sequence)
                )
                .into());
            }
        }
        if start.ended {
            self.reopen_or_keep_end(name, &mut start, last)?;
        }
        Ok(start)
    }

    /// Checks that the committed record is before `next`, the number of the next one.
    fn check_end(&self, committed: Option<InputPosition>, next: u64) -> Result<(), Cause> {
        match committed {
            Some(InputPosition::Record(sequence)) if sequence >= next => Err(format!(
                "{}: it ends before record {sequence}, which was committed: its end was lost in a power failure; drop the saved \
                 state of the source ({DROP_STATE}) to start again",
                self.path().display()
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Opens a partition again that has ended with the record `last`, if the flow had come to its end; else keeps its
    /// end.
    fn reopen_or_keep_end(&self, name: &str, start: &mut Start, last: u64) -> Result<(), Cause> {
        if self.had_ended {
            lock(&self.ends).remove(name);
            start.ended = false;
            self.begin_partition(name, start.position.as_ref())?;
        } else {
            let sequence = last;
            let position = start.position.clone();
            lock(&self.ends).insert(name.to_owned(), End { sequence, position });
        }
        Ok(())
    }

    /// Appends the first record of a partition.
    fn begin_partition(&self, name: &str, position: Option<&Position>) -> Result<u64, Cause> {
        self.mark(name, position, false)
    }

    /// Records the end of a partition again.
    fn end_partition(&self, name: &str, position: Option<&Position>) -> Result<u64, Cause> {
        self.mark(name, position, true)
    }

    /// Appends a record without frames.
    fn mark(&self, name: &str, position: Option<&Position>, ended: bool) -> Result<u64, Cause> {
        let head = Head {
            kind: Kind::Bytes,
            partition: name,
            position,
            ended,
        };
        self.record(&head, &Frames::default(), self.began_ns, &mut Vec::new())
    }

    fn retention(&self) -> Option<Retention> {
        let kept = Retention {
            keep_for_cursors: true,
            ..Retention::default()
        };
        match self.keep {
            Retain::Needed => Some(kept),
            Retain::Bytes(bytes) => Some(Retention {
                bytes: Some(bytes),
                ..kept
            }),
            Retain::Age(age) => Some(Retention {
                age: Some(age),
                ..kept
            }),
            Retain::All => None,
        }
    }
}

/// The positions of partitions in their recorded input.
fn input_positions<'a>(
    positions: &[(&'a str, Position)],
) -> Result<Vec<(&'a str, InputPosition)>, Cause> {
    let read = positions.iter().map(|(name, position)| {
        let read = InputPosition::of(position);
        let read = read.map_err(|error| context(format_args!("partition \"{name}\""), error))?;
        Ok((*name, read))
    });
    read.collect()
}

/// The records of the ends of partitions that have ended: the committed one, or if it was removed the first of its
/// copies.
fn find_ends(
    journal: &Journal,
    recorded: &[(&str, InputPosition)],
) -> Result<BTreeMap<String, End>, Cause> {
    let mut ends = BTreeMap::new();
    // An unknown record may be any of the partition.
    let ended = recorded.iter().filter_map(|(name, at)| match at {
        InputPosition::Record(_) => None,
        InputPosition::End(from) => Some((*name, *from)),
    });
    let wanted: BTreeMap<&str, Option<u64>> = ended.collect();
    let Some(first) = wanted.values().min() else {
        return Ok(ends);
    };
    let mut all = Recorded::of(journal)?;
    let oldest = journal.first()?;
    let first = first.map_or(oldest, |first| first.max(oldest));
    all.seek(first.min(journal.next()?))?;
    while let Some(batch) = all.next_batch()? {
        let from = wanted.get(batch.partition);
        if batch.ended && from.is_some_and(|from| Some(batch.sequence) >= *from) {
            let sequence = batch.sequence;
            let position = batch.position();
            let end = End { sequence, position };
            ends.entry(batch.partition.to_owned()).or_insert(end);
        }
    }
    Ok(ends)
}

impl Recording for Recorder {
    fn journal(&self) -> Option<Journal> {
        Some(self.writer.journal().clone())
    }
    fn is_durable(&self) -> bool {
        true
    }
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        let next = self.next()?;
        let positions = input_positions(positions)?.into_iter();
        let ours = positions.filter(|(name, _)| self.partitions.iter().any(|ours| ours == name));
        let needed = ours.filter_map(|(_, at)| match at {
            InputPosition::Record(sequence) => Some(sequence),
            InputPosition::End(_) => None,
        });
        let needed = needed.min();
        let needed = needed.map_or(next, |needed| needed.min(next));
        let needed = self.oldest_end()?.map_or(needed, |end| needed.min(end));
        if needed > self.needed.position()? {
            self.needed.set(needed)?;
            if let Some(retention) = self.retention() {
                self.writer.journal().prune(&retention)?;
            }
        }
        Ok(())
    }
}
