//! A partition of a topic on the worker that reads it.
//!
//! Invariant: the position is the offset after the last message that was passed on, or an offset before which there are
//! no further messages. It never decreases.

use std::sync::Arc;

use millstream_flow::clock::now_ns;
use millstream_flow::error::Cause;
use millstream_flow::framing::{Frames, Origin};
use millstream_flow::source::{Events, Next, Partition, Position};

use super::bounds::{Begin, shrunk};
use super::choices::Format;
use super::progress::Progress;
use super::run::Run;
use super::saved::Saved;
use crate::client::{Incoming, LastRecord, Notice, Polled, Queue, Trouble};
use crate::error::Error;
use crate::message::{Parts, put_value};

/// A batch ends with the message with which it has this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// The interval at which an idle partition looks for news of the client.
const LOOK_NS: u64 = 1_000_000_000;

/// A partition of a topic.
pub(super) struct KafkaPartition {
    run: Arc<Run>,
    topic: String,
    number: i32,
    origin: Arc<Origin>,
    progress: Arc<Progress>,
    // Before the run, which closes the client.
    queue: Option<Box<dyn Queue>>,
    format: Format,
    /// The offset of the next message.
    next: i64,
    /// The last message that was read, if its leader epoch is known.
    last: Option<LastRecord>,
    /// Where the run began, and where the reading ends.
    began: i64,
    end: Option<i64>,
    /// The offset of an end of the partition that the client reported before the queue was read last.
    reported_end: Option<i64>,
    /// The last offset that was committed for the group, and when to commit again.
    committed: (i64, u64),
    /// The client has reported that it cannot connect.
    is_cut_off: bool,
}

impl KafkaPartition {
    pub(super) fn new(
        run: Arc<Run>,
        (topic, number): (String, i32),
        queue: Box<dyn Queue>,
        progress: Arc<Progress>,
        (begin, end): (Begin, Option<i64>),
        format: Format,
    ) -> Self {
        let name = format!("topic \"{topic}\", partition {number}, offset");
        KafkaPartition {
            run,
            origin: Arc::new(Origin::records(name)),
            topic,
            number,
            progress,
            queue: Some(queue),
            format,
            next: begin.offset,
            last: begin.last,
            began: begin.offset,
            end,
            reported_end: None,
            committed: (begin.offset, 0),
            is_cut_off: false,
        }
    }

    fn has_ended(&self) -> bool {
        self.end.is_some_and(|end| self.next >= end)
    }

    /// Reads messages up to the limits of a batch. Returns whether the queue was found empty, or at the end of the
    /// partition.
    fn fill(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<bool, Cause> {
        let limit = events.limit();
        batch.clear();
        batch.origin = Some(Arc::clone(&self.origin));
        while batch.len() < limit && batch.data.len() < BATCH_BYTES && !self.has_ended() {
            match self.poll(batch)? {
                Polled::Message => {}
                Polled::Empty => return Ok(true),
                Polled::AtEnd => {
                    // The end is not before that at the start of the run: what is left before it are no messages.
                    if let Some(end) = self.end {
                        self.next = self.next.max(end);
                    }
                }
                Polled::Failed(trouble, reason) => self.failed(trouble, reason, events)?,
            }
        }
        Ok(false)
    }

    fn poll(&mut self, batch: &mut Frames) -> Result<Polled, Cause> {
        let Some(queue) = &mut self.queue else {
            return Ok(Polled::Empty);
        };
        let mut next = self.next;
        let mut last = self.last;
        let mut failure = None;
        let mut time_ms = None;
        let end = self.end;
        let format = self.format;
        let number = self.number;
        let topic = self.topic.as_str();
        let polled = queue.poll(&mut |message| {
            // What follows the end is read by another run.
            if let Some(end) = end.filter(|end| message.offset >= *end) {
                next = next.max(end);
            } else {
                next = next.max(message.offset + 1);
                time_ms = message.time_ms;
                last = message.epoch.map(|epoch| LastRecord {
                    end: message.offset + 1,
                    epoch,
                });
                let put = |out: &mut Vec<u8>| put(message, (topic, number), format, out);
                failure = batch.append(put).err();
                batch.numbers.push(message.offset as u64);
            }
        });
        (self.next, self.last) = (next, last);
        self.progress.advance(next, time_ms);
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(polled),
        }
    }

    fn failed(
        &mut self,
        trouble: Trouble,
        reason: String,
        events: &mut Events<'_>,
    ) -> Result<(), Cause> {
        let topic = self.topic.clone();
        let partition = self.number;
        let offset = self.next;
        match trouble {
            Trouble::Passing => events.fault(&format!(
                "topic \"{topic}\", partition {partition}: {reason}; the client tries again"
            )),
            Trouble::NoOffset => return Err(self.lost()?.into()),
            Trouble::NoTopic | Trouble::Lasting => {
                return Err(Box::new(Error::Read {
                    topic,
                    partition,
                    offset,
                    reason,
                }));
            }
        }
        Ok(())
    }

    /// Returns why the client has no message for the position.
    fn lost(&self) -> Result<Error, Error> {
        let topic = self.topic.clone();
        let partition = self.number;
        let offset = self.next;
        let control = &self.run.topics.control;
        let (first, end) = control.bounds((&topic, partition))?;
        if offset > end {
            return shrunk(&self.run, (&topic, partition), (offset, self.last), end);
        }
        let Some(last) = self.last.filter(|_| offset >= first) else {
            return Ok(Error::Lost {
                topic,
                partition,
                offset,
                first,
            });
        };
        let kept = control.kept_before((&topic, partition), last)?;
        Ok(match kept {
            Some(kept) if kept >= last.end => Error::Unread {
                topic,
                partition,
                offset,
                end: last.end,
            },
            kept => Error::Truncated {
                kept,
                topic,
                partition,
                offset,
                epoch: last.epoch,
            },
        })
    }

    /// Passes on what the client has reported.
    fn report(&mut self, events: &mut Events<'_>) -> Result<(), Cause> {
        let notices = self.queue.as_ref().map(|queue| queue.notices());
        for notice in notices.unwrap_or_default() {
            match notice {
                Notice::Refused(reason) => {
                    return Err(format!("the broker refuses the client: {reason}").into());
                }
                // One line for an outage, not one for each attempt.
                Notice::Passing(reason) if !self.is_cut_off => {
                    self.is_cut_off = true;
                    events.fault(&format!("{reason}; the client tries again"));
                }
                Notice::Passing(_) => {}
            }
        }
        Ok(())
    }

    /// Moves the position over the end of a partition that has no messages before it, as transactions leave gaps there.
    /// Without that, a partition whose messages have all expired would seem to have lost some.
    fn skip_gap(&mut self) {
        let Some(queue) = &self.queue else {
            return;
        };
        // The queue was read to its end after this report.
        if let Some(end) = self.reported_end.take() {
            self.next = self.next.max(end);
            self.progress.advance(self.next, None);
        }
        self.reported_end = queue.ended_before().filter(|end| *end > self.next);
    }

    /// Commits the position for the group, about once a second, in a run that does not notify of commits.
    fn commit(&mut self) {
        let (committed, at) = self.committed;
        if committed == self.next || !self.run.partitions_commit() || now_ns() < at {
            return;
        }
        self.committed = (self.next, now_ns() + LOOK_NS);
        if let Some(queue) = &self.queue
            && let Err(error) = queue.commit(self.next, false)
        {
            tracing::warn!("the offset of the group is not committed: {error}");
        }
    }
}

/// Appends a message to the frames of a batch.
fn put(message: &Incoming<'_>, (topic, partition): (&str, i32), format: Format, out: &mut Vec<u8>) {
    match format {
        Format::Value => put_value(message.value, out),
        Format::Message => {
            let parts = Parts {
                topic,
                partition,
                offset: message.offset,
                time_ms: message.time_ms,
                key: message.key,
                value: message.value,
            };
            parts.encode(out, |each| (message.headers)(each));
        }
    }
}

impl Partition<Frames> for KafkaPartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        // What was passed on before is processed, as far as a run without commits can tell.
        self.commit();
        if let Some(failure) = self.run.discovery.failure() {
            return Err(Box::new(failure));
        }
        let was_empty = self.fill(batch, events)?;
        if !batch.is_empty() {
            self.is_cut_off = false;
            return Ok(Next::Batch);
        }
        if self.has_ended() {
            self.progress.report();
            return Ok(Next::End);
        }
        if was_empty {
            self.skip_gap();
        }
        self.report(events)?;
        Ok(Next::Idle)
    }

    fn next_awake(&self) -> Option<u64> {
        Some(now_ns() + LOOK_NS)
    }

    fn position(&self) -> Result<Position, Cause> {
        let saved = Saved {
            offset: self.next,
            last: self.last,
            topic_id: self.run.topics.topic_id(&self.topic),
        };
        Ok(saved.position())
    }
}

impl Drop for KafkaPartition {
    fn drop(&mut self) {
        // Commits in the background may be lost with the client. This is the same client, so that none overtakes it.
        if let Some(queue) = self.queue.take()
            && self.began != self.next
            && self.run.partitions_commit()
            && !self.is_cut_off
            && let Err(error) = queue.commit(self.next, true)
        {
            tracing::warn!("the offset of the group is not committed: {error}");
        }
        self.run.closed();
    }
}
