//! The journal of a durable source in a run: appending to it, what of it is to be processed again, pruning.
//!
//! The position of a partition is the number of its last record that was processed. That record is never pruned, so
//! that it can be asked where the source itself stood; a partition that is quiet while others are not writes one without
//! frames now and then, so that it does not keep the journal from being pruned. The first record of each partition has no
//! frames either: it is there before anything is processed.

use std::path::PathBuf;

use millstream_journal::{Cursor, Journal, Options, Retention, Share, Sync, Writer};

use super::record::{Head, Kind};
use super::{Keep, Recorded, place};
use crate::error::Cause;
use crate::framing::Frames;
use crate::source::{Beginning, Position, Recording};

/// The position of a partition that has come to its end.
pub(super) const ENDED: Position = u64::MAX;
/// The size of a segment; about the largest batch that can be recorded.
const SEGMENT_BYTES: u64 = 32 << 20;
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
    began_ns: i64,
}

/// What a partition finds of itself when a run begins.
pub(super) struct Behind {
    /// What is to be processed before anything is read.
    pub(super) replay: Recorded,
    /// Its last record that was processed.
    pub(super) last: u64,
    /// Where the source itself stood behind its last record.
    pub(super) position: Option<Position>,
    /// True when that was the end.
    pub(super) ended: bool,
}

impl Recorder {
    pub(super) fn begin(
        run: &Beginning<'_>,
        keep: Keep,
        partitions: Vec<String>,
    ) -> Result<Self, Cause> {
        let recovery = run
            .recovery
            .ok_or("it is durable, and needs a directory for its state: --state DIR (state=, Options::recovery)")?;
        let path = place(&recovery.dir, run.source);
        if run.forget && path.exists() {
            std::fs::remove_dir_all(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let gone = run
            .recorded
            .iter()
            .find(|(name, at)| *at != ENDED && !partitions.iter().any(|ours| ours == name));
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
        let sync = if recovery.sync {
            Sync::Always
        } else {
            Sync::Never
        };
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let journal = Journal::open(&path, options.with_sync(sync))?;
        Ok(Recorder {
            writer: journal.writer()?,
            needed: journal.cursor(NEEDED, Share::Exclusive)?,
            keep,
            partitions,
            resumes: !run.recorded.is_empty(),
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
        Ok(self.writer.append_at(time_ns.max(0) as u64, scratch)?)
    }

    /// The number that the next record will get.
    pub(super) fn next(&self) -> Result<u64, Cause> {
        Ok(self.writer.journal().next()?)
    }

    /// What a partition finds of itself, having stood at `resume` at the last commit.
    pub(super) fn behind(&self, index: usize, resume: Option<Position>) -> Result<Behind, Cause> {
        let name = self.partition(index);
        let journal = self.writer.journal();
        let committed = resume.filter(|_| self.resumes);
        let next = journal.next()?;
        if let Some(sequence) = committed.filter(|at| *at != ENDED && *at >= next) {
            return Err(format!(
                "{}: it ends before record {sequence}, which was committed: a loss of power has taken its end; begin anew by \
                 forgetting the source",
                self.path().display()
            )
            .into());
        }
        let open = || Ok::<_, Cause>(Recorded::of(journal)?.partition(name));
        let mut behind = Behind {
            replay: open()?,
            last: next,
            position: resume.filter(|_| !self.resumes),
            ended: committed == Some(ENDED),
        };
        let mut all = open()?;
        match committed {
            Some(ENDED) => {
                behind.replay.seek(next)?;
                return Ok(behind);
            }
            Some(sequence) => {
                all.seek(sequence)?;
                behind.replay.seek(sequence + 1)?;
            }
            None => {}
        }
        let mut found = None;
        while let Some(batch) = all.next_batch()? {
            found.get_or_insert((batch.sequence, batch.items().len()));
            behind.position = batch.position;
            behind.ended = batch.ended;
        }
        match (found, committed) {
            (Some((first, _)), Some(sequence)) if first == sequence => behind.last = first,
            // The first record of a partition has no frames: it counts as processed.
            (Some((first, 0)), None) => behind.last = first,
            (None, None) => behind.last = self.begin_partition(name, behind.position)?,
            (_, wanted) => {
                return Err(format!(
                    "{}: record {} is not one of partition \"{name}\", which should begin there",
                    self.path().display(),
                    wanted.map_or(journal.first()?, |sequence| sequence)
                )
                .into());
            }
        }
        Ok(behind)
    }

    /// Appends the first record of a partition.
    fn begin_partition(&self, name: &str, position: Option<Position>) -> Result<u64, Cause> {
        let head = Head {
            kind: Kind::Bytes,
            partition: name,
            position,
            ended: false,
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
        if needed > self.needed.position()? {
            self.needed.set(needed)?;
            if let Some(retention) = self.retention() {
                self.writer.journal().prune(&retention)?;
            }
        }
        Ok(())
    }
}
