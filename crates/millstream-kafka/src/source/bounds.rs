//! The offsets at which a partition begins and ends.

use millstream_flow::error::Cause;
use millstream_flow::source::Position;

use super::choices::{End, Start};
use super::run::Run;
use super::saved::{self, Saved};
use crate::client::{LastRecord, TopicPartition};
use crate::error::Error;

/// Where the reading of a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) offset: i64,
    /// The last record before it that the flow has read, if its leader epoch is known.
    pub(super) last: Option<LastRecord>,
}

impl From<i64> for Begin {
    fn from(offset: i64) -> Self {
        Begin { offset, last: None }
    }
}

/// Returns where a saved position continues, if its message can still be read.
pub(super) fn resumed(
    run: &Run,
    of: TopicPartition<'_>,
    position: &Position,
) -> Result<Begin, Cause> {
    let Saved {
        offset,
        last,
        topic_id,
    } = saved::read(position)?;
    run.topics.check_id(of.0, topic_id)?;
    let (first, end) = run.topics.control.bounds(of)?;
    let topic = of.0.to_owned();
    let partition = of.1;
    if offset < first {
        return Err(Box::new(Error::Lost {
            topic,
            partition,
            offset,
            first,
        }));
    }
    // After the last record are ends of transactions. The client compares the epoch of a record with the offset after
    // it.
    let begin = match last {
        Some(last) if last.end >= first => Begin {
            offset: last.end,
            last: Some(last),
        },
        _ => Begin::from(offset),
    };
    if begin.offset > end {
        Err(Box::new(shrunk(run, of, (offset, begin.last), end)?))
    } else {
        Ok(begin)
    }
}

/// Returns the error of a partition that ends at `end`, before the position of the flow. It may have grown again after
/// it lost its end.
pub(super) fn shrunk(
    run: &Run,
    of: TopicPartition<'_>,
    (offset, last): (i64, Option<LastRecord>),
    end: i64,
) -> Result<Error, Error> {
    let last = last.filter(|last| last.end > end);
    let kept = last.map(|last| run.topics.control.kept_before(of, last));
    Ok(Error::Shrunk {
        topic: of.0.to_owned(),
        partition: of.1,
        offset,
        end,
        kept: kept.transpose()?.flatten().filter(|kept| *kept < end),
    })
}

/// Returns the offset at which a partition begins that has no position.
pub(super) fn started(run: &Run, of: TopicPartition<'_>, start: &Start) -> Result<i64, Error> {
    let (first, end) = run.topics.control.bounds(of)?;
    let checked = |offset: i64| {
        let topic = of.0.to_owned();
        let partition = of.1;
        match offset {
            offset if offset < first => Err(Error::Lost {
                topic,
                partition,
                offset,
                first,
            }),
            offset if offset > end => Err(Error::Shrunk {
                topic,
                partition,
                offset,
                end,
                kept: None,
            }),
            offset => Ok(offset),
        }
    };
    match start {
        Start::Earliest => Ok(first),
        Start::Latest => Ok(end),
        Start::Time(time_ms) => Ok(run.topics.control.offset_at(of, *time_ms)?.unwrap_or(end)),
        Start::Group => run
            .topics
            .control
            .group_offset(of)?
            .map_or(Ok(first), checked),
        Start::Offsets(offsets) => {
            let offset = offsets.get(&(of.0.to_owned(), of.1));
            offset.map_or(Ok(first), |offset| checked(*offset))
        }
    }
}

/// Returns the offset before which the reading ends.
pub(super) fn end(run: &Run, of: TopicPartition<'_>, end: End) -> Result<Option<i64>, Error> {
    let latest = match end {
        End::Never => return Ok(None),
        End::Latest | End::Time(_) => run.topics.control.bounds(of)?.1,
    };
    match end {
        End::Time(time_ms) => {
            let first = run.topics.control.offset_at(of, time_ms)?;
            Ok(Some(first.map_or(latest, |offset| offset.min(latest))))
        }
        _ => Ok(Some(latest)),
    }
}
