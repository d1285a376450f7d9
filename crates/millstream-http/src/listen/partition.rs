//! The partition of the flow: reads the requests in order.

use std::sync::Arc;

use millstream_flow::clock::now_ns;
use millstream_flow::error::{Cause, context};
use millstream_flow::framing::{Frames, Origin};
use millstream_flow::source::{Events, Next, Partition, Position};
use millstream_journal::Reader;

use super::body::{Item, read_record};
use super::desk::Held;
use super::intake::{Intake, Store};

/// The limit of a batch; the last request of a batch may exceed it.
const BATCH_BYTES: usize = 64 << 10;
/// After a line about a signature that is wrong there is none for so long: they need no secret.
const QUIET_NS: u64 = 60_000_000_000;

pub(super) struct RequestsPartition {
    intake: Arc<Intake>,
    /// Dropped after the intake is closed.
    _held: Held,
    reader: Option<Reader>,
    /// The number of the next request.
    next: u64,
    origin: Arc<Origin>,
    item: Item,
    /// No line about a signature is logged before this time of the engine's clock.
    quiet_until: u64,
}

impl RequestsPartition {
    pub(super) fn new(
        intake: Arc<Intake>,
        held: Held,
        first: u64,
        item: Item,
    ) -> Result<Self, Cause> {
        let reader = match &intake.store {
            Store::Recorded(recorded) => Some(recorded.reader(first)?),
            Store::Waiting(_) => None,
        };
        Ok(RequestsPartition {
            intake,
            _held: held,
            reader,
            next: first,
            origin: Arc::new(Origin::records("request")),
            item,
            quiet_until: 0,
        })
    }

    /// Counts requests that were refused because of their signature as faults of the source.
    fn count_unsigned(&mut self, events: &mut Events<'_>) {
        let Some((count, why)) = self.intake.take_unsigned() else {
            return;
        };
        let is_loud = now_ns() >= self.quiet_until;
        if is_loud {
            self.quiet_until = now_ns() + QUIET_NS;
        }
        let line = format!("{count} requests refused with 401: {why}; further ones are counted");
        events.faults(count, is_loud.then_some(&line));
    }

    /// Appends the items of the next request to the batch; false if there is none.
    fn read_request(&mut self, batch: &mut Frames) -> Result<bool, Cause> {
        let bytes = match (&mut self.reader, &self.intake.store) {
            (Some(reader), Store::Recorded(recorded)) => {
                let Some(record) = reader.next()? else {
                    return Ok(false);
                };
                read_record(record.body, self.item, batch).map_err(|cause| {
                    let journal = recorded.path();
                    context(
                        format_args!("{}, record {}", journal.display(), record.sequence),
                        cause,
                    )
                })?;
                record.body.len()
            }
            (_, Store::Waiting(waiting)) => {
                let Some((record, taken)) = waiting.pop() else {
                    return Ok(false);
                };
                read_record(&record, self.item, batch)?;
                // A client that is gone is not answered.
                let _ = taken.send(());
                record.len()
            }
            (None, Store::Recorded(_)) => return Ok(false),
        };
        self.intake.budget.release(bytes as u64);
        self.next += 1;
        Ok(true)
    }
}

impl Partition<Frames> for RequestsPartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        if let Some(cause) = self.intake.take_failure() {
            return Err(cause);
        }
        self.count_unsigned(events);
        batch.clear();
        batch.origin = Some(Arc::clone(&self.origin));
        // Asked first: a request is counted after it can be read.
        let has_all = self.intake.has_all();
        while batch.len() < events.limit() && batch.data.len() < BATCH_BYTES {
            if !self.read_request(batch)? {
                break;
            }
            batch.numbers.resize(batch.len(), self.next - 1);
        }
        match (batch.is_empty(), has_all) {
            (false, _) => Ok(Next::Batch),
            (true, true) => Ok(Next::End),
            (true, false) => Ok(Next::Idle),
        }
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.next.into())
    }
}

impl Drop for RequestsPartition {
    fn drop(&mut self) {
        // Requests that arrive now are refused; those that are recorded are acknowledged, and processed by the next
        // run. The server is stopped when the last reply is sent too.
        self.intake.close();
    }
}
