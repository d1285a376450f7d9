//! The journal of a durable source in a run: appending to it, what of it is to be processed again, pruning.
//!
//! The position of a partition is the number of its last record that was processed. That record is never pruned, so
//! that it can be asked where the source itself stood; a partition that is quiet while others are not writes one without
//! frames now and then, so that it does not keep the journal from being pruned. The first record of each partition has no
//! frames either: it is there before anything is processed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use millstream_journal::{Cursor, Journal, Options, Retention, Share, Sync, Writer};

use super::place::{Keep, place};
use super::record::Head;
use super::record::RecordedBatch;
use super::recorded::Recorded;
use crate::batch::Kind;
use crate::error::Cause;
use crate::framing::Frames;
use crate::run::control::lock;
use crate::source::{Beginning, Position, Recording};

/// Part of the position of a partition that has come to its end; the rest is the number of the record that says so.
/// Earlier versions wrote `u64::MAX` for any end.
pub(super) const ENDED: Position = 1 << 63;
/// The size of a segment; about the largest batch that can be recorded.
const SEGMENT_BYTES: u64 = 32 << 20;
/// An end that is so far behind the newest record is recorded again, so that it does not keep the journal from being pruned.
const END_RECORDS: u64 = 1024;
/// The cursor that stands at the oldest record that is needed.
const NEEDED: &str = "needed";

/// Records the input of a source, for all its partitions.
pub(super) struct Recorder {
    writer: Writer,
    needed: Cursor,
    keep: Keep,
    partitions: Vec<String>,
    /// Whether positions of the last commit are those of records, not the source's own.
    resumes: bool,
    /// Whether partitions that have ended are asked again: the flow had come to its end, and may go on.
    had_ended: bool,
    /// The partitions that have ended, by name.
    ends: Mutex<BTreeMap<String, End>>,
    began_ns: i64,
}

/// Where the source itself stood.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub(super) position: Option<Position>,
    /// The same where a number cannot say it.
    pub(super) place: Option<Vec<u8>>,
}

impl Standing {
    fn of(batch: &RecordedBatch<'_>) -> Self {
        Standing {
            position: batch.position,
            place: batch.place.map(<[u8]>::to_vec),
        }
    }
}

/// The end of a partition.
#[derive(Clone, Debug)]
struct End {
    /// The record that says so.
    sequence: u64,
    standing: Standing,
}

/// What a partition finds of itself when a run begins.
pub(super) struct Behind {
    /// What is to be processed before anything is read.
    pub(super) replay: Recorded,
    /// Its last record that was processed.
    pub(super) last: u64,
    /// Where the source itself stood behind its last record.
    pub(super) standing: Standing,
    /// True when that was the end.
    pub(super) ended: bool,
}

impl Recorder {
    pub(super) fn begin(
        run: &Beginning<'_>,
        keep: Keep,
        partitions: Vec<String>,
    ) -> Result<Self, Cause> {
        let state_dir = run
            .state_dir
            .ok_or("it is durable, and needs a directory for its state: --state DIR (state=, Options::recovery)")?;
        let path = place(state_dir, run.source);
        if run.forget && path.exists() {
            std::fs::remove_dir_all(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let gone = run
            .recorded
            .iter()
            .find(|(name, at)| at & ENDED == 0 && !partitions.iter().any(|ours| ours == name));
        if let Some((name, _)) = gone {
            return Err(format!(
                "{}: input of its partition \"{name}\" was recorded, and the source does not have that any more; bring it back, or \
                 forget the source",
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
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let journal = Journal::open(&path, options.with_sync(sync))?;
        let ends = find_ends(&journal, run.recorded)?;
        Ok(Recorder {
            writer: journal.writer()?,
            needed: journal.cursor(NEEDED, Share::Exclusive)?,
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

    /// Appends a batch, which `scratch` is used for, and waits until it is as safe as it is to be.
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
            let standing = Standing {
                position: head.position,
                place: head.place.map(<[u8]>::to_vec),
            };
            let end = End { sequence, standing };
            lock(&self.ends).insert(head.partition.to_owned(), end);
        }
        Ok(sequence)
    }

    /// The oldest record that says where a source ended; old ones are written anew.
    fn oldest_end(&self) -> Result<Option<u64>, Cause> {
        let ends = lock(&self.ends).clone();
        let mut oldest = None;
        for (name, end) in ends {
            let mut sequence = end.sequence;
            if self.next()? > sequence + END_RECORDS {
                sequence = self.end_partition(&name, &end.standing)?;
            }
            oldest = Some(oldest.map_or(sequence, |oldest: u64| oldest.min(sequence)));
        }
        Ok(oldest)
    }

    /// The number that the next record will get.
    pub(super) fn next(&self) -> Result<u64, Cause> {
        Ok(self.writer.journal().next()?)
    }

    /// What a partition finds of itself, having stood at `resume` at the last commit; `source_place` is where the source
    /// stood, if it was not durable then.
    pub(super) fn behind(
        &self,
        index: usize,
        resume: Option<Position>,
        source_place: Option<&[u8]>,
    ) -> Result<Behind, Cause> {
        let name = self.partition(index);
        let journal = self.writer.journal();
        let committed = resume.filter(|_| self.resumes);
        let next = journal.next()?;
        self.check_end(committed, next)?;
        let open = || Ok::<_, Cause>(Recorded::of(journal)?.partition(name));
        let mut behind = Behind {
            replay: open()?,
            last: next,
            standing: match self.resumes {
                true => Standing::default(),
                false => Standing {
                    position: resume,
                    place: source_place.map(<[u8]>::to_vec),
                },
            },
            ended: false,
        };
        let mut all = open()?;
        let ended = committed.is_some_and(|at| at & ENDED != 0);
        let end = lock(&self.ends).get(name).map(|end| end.sequence);
        let committed = match (ended, end) {
            (false, _) => committed,
            (true, Some(end)) if self.had_ended => Some(end),
            (true, end) => {
                behind.ended = true;
                behind.last = end.unwrap_or(u64::MAX);
                behind.replay.seek(next)?;
                return Ok(behind);
            }
        };
        if let Some(sequence) = committed {
            all.seek(sequence)?;
            behind.replay.seek(sequence + 1)?;
        }
        let (mut found, mut last) = (None, next);
        while let Some(batch) = all.next_batch()? {
            found.get_or_insert((batch.sequence, batch.items().len()));
            behind.standing = Standing::of(&batch);
            behind.ended = batch.ended;
            last = batch.sequence;
        }
        match (found, committed) {
            (Some((first, _)), Some(sequence)) if first == sequence => behind.last = first,
            // The first record of a partition has no frames: it counts as processed.
            (Some((first, 0)), None) => behind.last = first,
            (None, None) => behind.last = self.begin_partition(name, &behind.standing)?,
            (_, wanted) => {
                return Err(format!(
                    "{}: record {} is not one of partition \"{name}\", which should begin there",
                    self.path().display(),
                    wanted.map_or(journal.first()?, |sequence| sequence)
                )
                .into());
            }
        }
        if behind.ended {
            self.goes_on(name, &mut behind, last)?;
        }
        Ok(behind)
    }

    /// The record that was committed comes before `next`, the number of the next one.
    fn check_end(&self, committed: Option<Position>, next: u64) -> Result<(), Cause> {
        match committed.filter(|at| at & ENDED == 0 && *at >= next) {
            None => Ok(()),
            Some(sequence) => Err(format!(
                "{}: it ends before record {sequence}, which was committed: a loss of power has taken its end; begin anew by \
                 forgetting the source",
                self.path().display()
            )
            .into()),
        }
    }

    /// Opens a partition again that has ended with the record `last`, where the flow had come to its end; else notes its end.
    fn goes_on(&self, name: &str, behind: &mut Behind, last: u64) -> Result<(), Cause> {
        if self.had_ended {
            lock(&self.ends).remove(name);
            behind.ended = false;
            self.begin_partition(name, &behind.standing)?;
        } else {
            let (sequence, standing) = (last, behind.standing.clone());
            lock(&self.ends).insert(name.to_owned(), End { sequence, standing });
        }
        Ok(())
    }

    /// Appends the first record of a partition.
    fn begin_partition(&self, name: &str, standing: &Standing) -> Result<u64, Cause> {
        self.mark(name, standing, false)
    }

    /// Records the end of a partition once more.
    fn end_partition(&self, name: &str, standing: &Standing) -> Result<u64, Cause> {
        self.mark(name, standing, true)
    }

    /// Appends a record without frames.
    fn mark(&self, name: &str, standing: &Standing, ended: bool) -> Result<u64, Cause> {
        let head = Head {
            kind: Kind::Bytes,
            partition: name,
            position: standing.position,
            place: standing.place.as_deref(),
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
            Keep::Needed => Some(kept),
            Keep::Bytes(bytes) => Some(Retention {
                bytes: Some(bytes),
                ..kept
            }),
            Keep::Age(age) => Some(Retention {
                age: Some(age),
                ..kept
            }),
            Keep::All => None,
        }
    }
}

/// The records that say where partitions ended that have ended: the committed one, or where that has been removed the
/// first of its copies.
fn find_ends(
    journal: &Journal,
    recorded: &[(&str, Position)],
) -> Result<BTreeMap<String, End>, Cause> {
    let mut ends = BTreeMap::new();
    let ended = recorded.iter().filter(|(_, at)| at & ENDED != 0);
    let from = |at: Position| match at {
        u64::MAX => 0,
        at => at & !ENDED,
    };
    let wanted: BTreeMap<&str, u64> = ended.map(|(name, at)| (*name, from(*at))).collect();
    let Some(first) = wanted.values().min() else {
        return Ok(ends);
    };
    let mut all = Recorded::of(journal)?;
    all.seek(journal.first()?.max(*first).min(journal.next()?))?;
    while let Some(batch) = all.next_batch()? {
        let from = wanted.get(batch.partition);
        if batch.ended && from.is_some_and(|from| batch.sequence >= *from) {
            let (sequence, standing) = (batch.sequence, Standing::of(&batch));
            let end = End { sequence, standing };
            ends.entry(batch.partition.to_owned()).or_insert(end);
        }
    }
    Ok(ends)
}

impl Recording for Recorder {
    fn is_durable(&self) -> bool {
        true
    }
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        let ours = positions
            .iter()
            .filter(|(name, _)| self.partitions.iter().any(|ours| ours == name));
        let next = self.next()?;
        let needed = ours.map(|(_, position)| *position).min();
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
