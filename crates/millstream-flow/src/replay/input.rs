//! One recorded input: its batches in the order of their recording.

use std::path::PathBuf;

use millstream_journal::{Journal, Options, Reader};

use super::moment::{Moment, Point, Recording, Scene};
use crate::durable::{Kind, Recorded};
use crate::error::{Cause, FlowError};
use crate::framing::Frames;

/// The partition of a journal whose records are frames.
const ONLY: &str = "0";
/// The largest number of records of a plain journal with the same time that are read together.
const RECORDS_MAX: usize = 1024;

/// An input of a replay.
pub(super) struct Input {
    source: String,
    path: PathBuf,
    from: From,
    kind: Kind,
    partitions: Vec<Known>,
    next: Option<Moment>,
}

/// A partition that the input has.
struct Known {
    name: String,
    /// Its last record that has items: an earlier end was only the end of a run.
    last: Option<u64>,
}

impl Known {
    fn named(name: &str) -> Self {
        Known {
            name: name.to_owned(),
            last: None,
        }
    }
}

enum From {
    Recorded(Box<Recorded>),
    Plain(Box<Plain>),
}

/// A journal whose records are frames.
struct Plain {
    reader: Reader,
    end: u64,
    end_ns: Option<u64>,
}

impl Input {
    pub(super) fn open(
        of: &Recording,
        from: Option<Point>,
        to: Option<Point>,
    ) -> Result<Self, FlowError> {
        let failed = |cause: Cause| FlowError::Open {
            what: format!("recorded input of \"{}\"", of.source),
            cause,
        };
        let (kind, partitions) = if of.plain {
            (Kind::Bytes, vec![Known::named(ONLY)])
        } else {
            inspect(recorded(of, from, to).map_err(failed)?).map_err(failed)?
        };
        let opened = if of.plain {
            plain(of, from, to).map(From::Plain)
        } else {
            recorded(of, from, to).map(|recorded| From::Recorded(Box::new(recorded)))
        };
        let mut input = Input {
            source: of.source.clone(),
            path: of.path.clone(),
            from: opened.map_err(failed)?,
            kind,
            partitions,
            next: None,
        };
        input.read()?;
        Ok(input)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the description of the input for the flow.
    pub(super) fn scene(&self) -> Scene {
        Scene {
            source: self.source.clone(),
            path: self.path.clone(),
            kind: self.kind,
            partitions: self
                .partitions
                .iter()
                .map(|known| known.name.clone())
                .collect(),
        }
    }

    /// Returns the time at which its next batch was recorded.
    pub(super) fn time_ns(&self) -> Option<i64> {
        self.next.as_ref().map(|next| next.time_ns)
    }

    /// Takes the next batch.
    pub(super) fn take(&mut self) -> Result<Option<Moment>, FlowError> {
        let next = self.next.take();
        self.read()?;
        Ok(next)
    }

    fn read(&mut self) -> Result<(), FlowError> {
        let next = match &mut self.from {
            From::Recorded(recorded) => next_recorded(recorded, &self.partitions),
            From::Plain(plain) => plain.next(),
        };
        self.next = next.map_err(|cause| FlowError::Open {
            what: format!("recorded input of \"{}\"", self.source),
            cause,
        })?;
        Ok(())
    }
}

fn recorded(of: &Recording, from: Option<Point>, to: Option<Point>) -> Result<Recorded, Cause> {
    let mut recorded = Recorded::open(&of.path)?;
    match from {
        Some(Point::Sequence(sequence)) => recorded.seek(sequence)?,
        Some(Point::Time(time)) => recorded.seek_time(time)?,
        None => {}
    }
    Ok(match to {
        Some(Point::Sequence(sequence)) => recorded.to_sequence(sequence),
        Some(Point::Time(time)) => recorded.to_time(time),
        None => recorded,
    })
}

/// Returns the encoding of the items, and the partitions in the order of their first records.
fn inspect(mut recorded: Recorded) -> Result<(Kind, Vec<Known>), Cause> {
    let mut kind = None;
    let mut partitions: Vec<Known> = Vec::new();
    while let Some(batch) = recorded.next_batch()? {
        let known = partitions
            .iter()
            .position(|known| known.name == batch.partition);
        let partition = known.unwrap_or(partitions.len());
        if known.is_none() {
            partitions.push(Known::named(batch.partition));
        }
        if batch.items().len() > 0 {
            partitions[partition].last = Some(batch.sequence);
        }
        if batch.items().len() > 0 && *kind.get_or_insert(batch.kind) != batch.kind {
            let sequence = batch.sequence;
            return Err(format!("from record {sequence} on the items of the source have another encoding; replay the records before or after it").into());
        }
    }
    Ok((kind.unwrap_or(Kind::Bytes), partitions))
}

/// Returns the next batch that has items or ends its partition.
fn next_recorded(recorded: &mut Recorded, partitions: &[Known]) -> Result<Option<Moment>, Cause> {
    while let Some(batch) = recorded.next_batch()? {
        let partition = partitions
            .iter()
            .position(|known| known.name == batch.partition);
        let Some(partition) = partition else {
            continue;
        };
        let ended = batch.ended && partitions[partition].last <= Some(batch.sequence);
        if !ended && batch.items().len() == 0 {
            continue;
        }
        let mut frames = Frames::default();
        batch.copy_to(&mut frames);
        return Ok(Some(Moment {
            time_ns: i64::try_from(batch.time_ns).unwrap_or(i64::MAX),
            partition,
            frames,
            ended,
        }));
    }
    Ok(None)
}

fn plain(of: &Recording, from: Option<Point>, to: Option<Point>) -> Result<Box<Plain>, Cause> {
    let journal = Journal::open(&of.path, Options::read_only())?;
    let mut reader = journal.reader()?;
    match from {
        Some(Point::Sequence(sequence)) => reader.seek(sequence)?,
        Some(Point::Time(time)) => reader.seek_time(time)?,
        None => {}
    }
    let next = journal.next()?;
    let (end, end_ns) = match to {
        Some(Point::Sequence(sequence)) => (sequence.min(next), None),
        Some(Point::Time(time)) => (next, Some(time)),
        None => (next, None),
    };
    Ok(Box::new(Plain {
        reader,
        end,
        end_ns,
    }))
}

impl Plain {
    /// Returns the next records that were appended at one time.
    fn next(&mut self) -> Result<Option<Moment>, Cause> {
        let mut moment = Moment::default();
        moment.frames.offset = self.reader.position();
        let mut time = None;
        while self.reader.position() < self.end && moment.frames.spans.len() < RECORDS_MAX {
            let at = self.reader.peek_time()?;
            let Some(at) = at.filter(|at| {
                self.end_ns.is_none_or(|end| *at < end) && time.is_none_or(|time| time == *at)
            }) else {
                break;
            };
            time = Some(at);
            let Some(record) = self.reader.next()? else {
                break;
            };
            let start = moment.frames.data.len() as u32;
            moment.frames.data.extend_from_slice(record.body);
            let end = moment.frames.data.len() as u32;
            moment.frames.spans.push((start, end));
        }
        moment.time_ns = time.map_or(0, |time| i64::try_from(time).unwrap_or(i64::MAX));
        Ok((!moment.frames.spans.is_empty()).then_some(moment))
    }
}
