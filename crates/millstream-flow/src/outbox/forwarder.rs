//! The thread that delivers the records of an outbox.
//!
//! Invariant: it delivers committed records only, in their order, each batch until it is acknowledged. Its position is
//! the cursor `delivered` of the journal. A destination that remembers its own position is asked for it after each
//! connect, and that position counts: records that it has are skipped, and records that it has lost are delivered
//! again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use millstream_journal::clock::wall_ns;
use millstream_journal::{Cursor, CursorMode, Journal, Reader, Retention};

use crate::clock::now_ns;
use crate::control::{Ends, Lifecycle};
use crate::error::{Cause, FlowError, chain};
use crate::framing::Frames;
use crate::named::drop_state;
use crate::outbox::destination::{DeliveryError, refused};
use crate::outbox::link::{Link, Position};
use crate::outbox::progress::{Progress, Situation};
use crate::outbox::refusals::Parts as Divided;
use crate::outbox::refused::RefusedLog;
use crate::outbox::settings::{CHECK_INTERVAL, DELIVERED, STOP_NS, Settings};

/// The number of records in the outbox of a flow that does not run that are not delivered.
pub(crate) fn undelivered(journal: &Journal) -> Result<u64, Cause> {
    let cursors = journal.info()?.cursors;
    let delivered = cursors.iter().find(|cursor| cursor.name == DELIVERED);
    let delivered = delivered.map_or(0, |cursor| cursor.position);
    Ok(journal
        .next()?
        .saturating_sub(delivered.max(journal.first()?)))
}

/// The parts of a forwarder.
pub(super) struct Parts {
    pub(super) sink: String,
    pub(super) address: String,
    pub(super) journal: Journal,
    pub(super) link: Link,
    pub(super) settings: Settings,
    pub(super) progress: Arc<Progress>,
    /// Where refused records are kept, if they become dead letters.
    pub(super) refused: Option<Arc<RefusedLog>>,
    pub(super) life: Arc<Lifecycle>,
    pub(super) ends: Arc<Ends>,
}

/// Delivers the records of an outbox.
pub(super) struct Forwarder {
    parts: Parts,
    cursor: Cursor,
    reader: Reader,
    /// The records that are delivered next, from number `first` on.
    batch: Frames,
    first: u64,
    /// The parts of a batch that was refused.
    divided: Divided,
    /// The batch waits for more records until then, in a sink that has an age of batches.
    due_at: u64,
    /// Earlier runs have left the records below this number.
    left_end: u64,
    /// This run has written no record from this number on to the destination.
    attempted: u64,
    /// Whether the destination has been reached in this run.
    has_connected: bool,
    /// No attempt is made before.
    not_before: u64,
    /// The time of the last delivery, or of the end of the flow.
    moved_at: Option<u64>,
    /// The time at which the request to stop was seen.
    stop_seen: Option<u64>,
    /// The last failure of the destination.
    last_error: String,
}

impl Forwarder {
    /// Creates a forwarder that resumes from the position of the last one.
    pub(super) fn new(parts: Parts) -> Result<Self, Cause> {
        let cursor = parts.journal.cursor(DELIVERED, CursorMode::Exclusive)?;
        // What is pruned was acknowledged; a loss of power may have taken that from the cursor.
        let first = cursor.position()?.max(parts.journal.first()?);
        let mut reader = parts.journal.reader()?;
        reader.seek(first)?;
        if let Some(refused) = &parts.refused {
            refused.settle(first, |_| true)?;
        }
        Ok(Forwarder {
            cursor,
            reader,
            batch: Frames::default(),
            first,
            divided: Divided::default(),
            due_at: 0,
            left_end: parts.progress.situation().committed,
            attempted: first,
            has_connected: false,
            not_before: 0,
            moved_at: None,
            stop_seen: None,
            last_error: String::new(),
            parts,
        })
    }

    /// Runs until everything that is committed in this run is delivered, or the run stops or fails.
    pub(super) fn run(mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work()));
        let outcome = outcome
            .unwrap_or_else(|panic| Err(FlowError::panicked(self.parts.sink.clone(), &*panic)));
        if let Err(error) = outcome {
            self.parts.life.fail(error);
        }
        self.parts.progress.end();
        let ends = Arc::clone(&self.parts.ends);
        drop(self);
        ends.forwarder_ended();
    }

    fn work(&mut self) -> Result<(), FlowError> {
        self.count().map_err(|cause| self.broken(cause))?;
        loop {
            let now = self.parts.progress.situation();
            if self.is_over(now)? {
                break;
            }
            if now_ns() < self.not_before {
                let left = Duration::from_nanos(self.not_before.saturating_sub(now_ns()));
                self.parts.progress.pause(left.min(CHECK_INTERVAL));
            } else if !self.parts.link.is_connected() || self.has_due(now)? {
                self.attempt(now)?;
            } else {
                let read = self.first + self.batch.spans.len() as u64;
                self.parts.progress.wait(read, CHECK_INTERVAL);
            }
        }
        self.log_remaining();
        Ok(())
    }

    /// Counts the records that an earlier run has left.
    fn count(&mut self) -> Result<(), Cause> {
        // What this run has committed by now is counted where it is appended.
        self.count_waiting(self.left_end)
    }

    /// Adds the records from `first` to below `end` to those that wait.
    fn count_waiting(&mut self, end: u64) -> Result<(), Cause> {
        let oldest = if self.first < end {
            self.reader.peek_time()?
        } else {
            None
        };
        let (records, bytes) = self.measure(end)?;
        self.reader.seek(self.first)?;
        self.parts.progress.found(records, bytes, oldest);
        Ok(())
    }

    /// Reads to the record `end`; returns the number of records, and their bytes.
    fn measure(&mut self, end: u64) -> Result<(usize, usize), Cause> {
        let mut records = 0;
        let mut bytes = 0;
        while self.reader.position() < end {
            let Some(record) = self.reader.next()? else {
                break;
            };
            (records, bytes) = (records + 1, bytes + record.body.len());
        }
        Ok((records, bytes))
    }

    /// True if nothing more is delivered in this run.
    fn is_over(&mut self, now: Situation) -> Result<bool, FlowError> {
        let life = &self.parts.life;
        if life.aborted() || (now.finished && self.first >= now.committed) {
            return Ok(true);
        }
        if !now.finished {
            return Ok(false);
        }
        if life.stopping() {
            let since = *self.stop_seen.get_or_insert_with(now_ns);
            let is_failing = self.parts.link.failures() > 0;
            return Ok(is_failing || now_ns().saturating_sub(since) > STOP_NS);
        }
        let since = *self.moved_at.get_or_insert_with(now_ns);
        let limit = self.parts.settings.end_wait.as_nanos() as u64;
        if self.parts.link.failures() == 0 || now_ns().saturating_sub(since) < limit {
            return Ok(false);
        }
        let cause = format!(
            "{} records wait in {}: {}; start the flow again to deliver them",
            now.committed - self.first,
            self.parts.journal.path().display(),
            self.last_error
        );
        let sink = &self.parts.sink;
        let address = &self.parts.address;
        let records = (self.first, now.committed - 1);
        let failure = refused(sink, address, Some(records), cause.into());
        Err(FlowError::Failed(failure))
    }

    /// Makes one attempt: connects if necessary, and delivers a batch if there is one.
    fn attempt(&mut self, now: Situation) -> Result<(), FlowError> {
        let tried = match self.parts.link.connect() {
            Ok(position) => {
                self.take_position(position)?;
                self.deliver(now)
            }
            Err(error) => Err(error),
        };
        match tried {
            Ok(()) => self.log_success(),
            Err(DeliveryError::Fatal(cause) | DeliveryError::Refused(cause)) => {
                return Err(self.refused(cause));
            }
            Err(DeliveryError::Retry(cause)) => {
                self.parts.progress.failed();
                let first = self.parts.link.failures() == 0;
                self.last_error = chain(&*cause).to_string();
                if self.parts.link.failed(&cause) {
                    return Err(self.refused(cause));
                }
                if self.parts.link.has_progressed() {
                    self.moved_at = Some(now_ns());
                }
                if first {
                    self.log_failure();
                }
                self.not_before = now_ns() + self.parts.link.delay().as_nanos() as u64;
            }
        }
        Ok(())
    }

    /// Delivers the next batch, or the one that failed before.
    fn deliver(&mut self, now: Situation) -> Result<(), DeliveryError> {
        self.fill(now.committed).map_err(DeliveryError::Fatal)?;
        if self.batch.spans.is_empty() || !self.is_due(now) {
            return Ok(());
        }
        let records = self.batch.spans.len();
        let last = self.first + records as u64 - 1;
        self.attempted = self.attempted.max(last + 1);
        let mut refused = Vec::new();
        if self.divided.skips_next {
            self.parts.link.skip(last)?;
            refused.push(last);
        } else {
            match self.parts.link.write(&self.batch, self.first, last) {
                Ok(left_out) => {
                    self.parts.progress.delivered(records, &left_out);
                    refused.extend(left_out.into_iter().map(|(number, _)| number));
                }
                Err(error) => return self.divide(error),
            }
        }
        self.moved_at = Some(now_ns());
        let bytes = self.batch.iter().map(<[u8]>::len).sum();
        let acknowledged = self.acknowledge(last + 1, records, bytes);
        let settled = acknowledged.and_then(|()| match &self.parts.refused {
            Some(log) => log.settle(last + 1, |number| refused.contains(&number)),
            None => Ok(()),
        });
        settled.map_err(DeliveryError::Fatal)
    }

    /// Halves a batch of which the destination refuses some record. One that is alone is skipped, or is the failure.
    fn divide(&mut self, error: DeliveryError) -> Result<(), DeliveryError> {
        let DeliveryError::Refused(cause) = error else {
            return Err(error);
        };
        let records = self.batch.spans.len() as u64;
        if records == 1 {
            if !self.parts.link.skips_refused() {
                return Err(DeliveryError::Refused(cause));
            }
            let reason = chain(&*cause).to_string();
            self.keep(&reason)?;
            self.parts.progress.refused(self.first, &reason);
            self.divided.skips_next = true;
            return Ok(());
        }
        let half = self.divided.halve(self.first, self.first + records);
        self.batch.spans.truncate(half as usize);
        let end = self.batch.spans.last().map_or(0, |span| span.1);
        self.batch.data.truncate(end as usize);
        let moved = self.reader.seek(self.first + half);
        moved.map_err(DeliveryError::fatal)
    }

    /// Keeps the record that was refused alone for its dead letter, if there is one.
    fn keep(&self, reason: &str) -> Result<(), DeliveryError> {
        let Some(refused) = &self.parts.refused else {
            return Ok(());
        };
        let kept = refused.add(self.first, reason, self.batch.get(0));
        kept.map_err(DeliveryError::Fatal)
    }

    /// Reads what is committed; true if a batch is ready for delivery.
    fn has_due(&mut self, now: Situation) -> Result<bool, FlowError> {
        self.fill(now.committed)
            .map_err(|cause| self.broken(cause))?;
        Ok(!self.batch.spans.is_empty() && self.is_due(now))
    }

    /// True if the batch waits for no more records.
    fn is_due(&self, now: Situation) -> bool {
        self.parts.settings.batch_age.is_none()
            || self.is_full()
            || self.is_unfinished()
            || self.divided.end().is_some()
            || now.finished
            || self.parts.progress.is_full()
            || now_ns() >= self.due_at
    }

    /// True if an attempt to write the batch has failed.
    fn is_unfinished(&self) -> bool {
        !self.batch.spans.is_empty() && self.attempted > self.first
    }

    fn is_full(&self) -> bool {
        let settings = &self.parts.settings;
        self.batch.spans.len() >= settings.batch_records
            || self.batch.data.len() >= settings.batch_bytes
    }

    /// Sets the time until which a new batch waits for more records, from the time of its first record.
    fn set_due(&mut self) -> Result<(), Cause> {
        let Some(age) = self.parts.settings.batch_age else {
            return Ok(());
        };
        let appended = self.reader.peek_time()?.unwrap_or_default();
        let left = (age.as_nanos() as u64).saturating_sub(wall_ns().saturating_sub(appended));
        self.due_at = now_ns().saturating_add(left);
        Ok(())
    }

    /// Reads committed records into the batch until it is full. A batch that was written once stays as it is.
    fn fill(&mut self, committed: u64) -> Result<(), Cause> {
        if self.is_unfinished() {
            return Ok(());
        }
        let committed = self.divided.end().unwrap_or(committed).min(committed);
        let is_new = self.batch.spans.is_empty();
        if is_new && self.reader.position() < committed {
            self.set_due()?;
        }
        while self.reader.position() < committed && !self.is_full() {
            let Some(record) = self.reader.next()? else {
                break;
            };
            self.batch
                .append(|out| out.extend_from_slice(record.body))?;
        }
        Ok(())
    }

    /// Empties the batch, and keeps its memory.
    fn clear(&mut self) {
        self.batch.spans.clear();
        self.batch.data.clear();
    }

    /// Stores that the destination has all records below `next`, and prunes delivered segments.
    fn acknowledge(&mut self, next: u64, records: usize, bytes: usize) -> Result<(), Cause> {
        let before = self.parts.journal.first()?;
        self.cursor.set(next)?;
        self.first = next;
        self.divided.advance(next);
        self.clear();
        let oldest = self.reader.peek_time()?;
        self.parts.progress.left(records, bytes, oldest);
        if self.reader.segment_start()? > before {
            self.parts.journal.prune(&Retention {
                keep_for_cursors: true,
                ..Retention::default()
            })?;
        }
        Ok(())
    }

    /// Adopts the position of a destination that remembers it.
    fn take_position(&mut self, position: Position) -> Result<(), FlowError> {
        let known = self.has_connected;
        let Position::Next(next) = position else {
            if !known && self.parts.link.is_connected() {
                self.log_start(None);
                self.has_connected = true;
            }
            return Ok(());
        };
        // A record that neither this run has tried to write nor an earlier one can have written was written by another
        // forwarder.
        let most = if known {
            self.attempted
        } else {
            self.attempted.max(self.left_end)
        };
        if next > most {
            return Err(self.refused(self.too_far(next - 1, most, known).into()));
        }
        if known && self.is_unfinished() && next > self.first && self.parts.link.compares() {
            // Some records of the batch are there: the next write finds out whether they are those of this outbox.
            return Ok(());
        }
        let pruned = self
            .parts
            .journal
            .first()
            .map_err(|e| self.broken(e.into()))?;
        if next < pruned {
            return Err(self.refused(self.too_early(next, pruned).into()));
        }
        if next < self.first {
            let sink = self.parts.sink.as_str();
            tracing::warn!(
                sink,
                "sink \"{sink}\" ({}): it has the records before {next} only, and had acknowledged those before {}: they are delivered again",
                self.parts.address,
                self.first
            );
        }
        if !known {
            self.log_start(Some(next));
            self.has_connected = true;
        }
        let moved = if next < self.first {
            self.return_to(next)
        } else {
            self.skip_to(next)
        };
        moved.map_err(|cause| self.broken(cause))
    }

    /// Delivers again from record `next` on: the destination has lost what it had acknowledged.
    fn return_to(&mut self, next: u64) -> Result<(), Cause> {
        let lost_end = std::mem::replace(&mut self.first, next);
        self.cursor.set(next)?;
        if let Some(refused) = &self.parts.refused {
            refused.rewind(next);
        }
        self.divided.clear();
        self.clear();
        self.reader.seek(next)?;
        self.count_waiting(lost_end)
    }

    /// A destination that is ahead by more than a delivery was served by a newer copy of the state: only that one knows
    /// what it refused.
    fn warn_of_others(&self, next: u64) {
        if next - self.first > self.parts.settings.batch_records as u64 {
            let sink = self.parts.sink.as_str();
            tracing::warn!(
                sink,
                "sink \"{sink}\" ({}): it has the records {} to {}, which a newer copy of this state has delivered: the dead letters of those \
                 that it refused are in the output of that one only",
                self.parts.address,
                self.first,
                next - 1
            );
        }
    }

    /// Acknowledges the records below `next`, which the destination has already.
    fn skip_to(&mut self, next: u64) -> Result<(), Cause> {
        if next <= self.first {
            return Ok(());
        }
        if let Some(refused) = &self.parts.refused {
            self.warn_of_others(next);
            refused.settle(next, |_| true)?;
        }
        self.clear();
        self.reader.seek(self.first)?;
        let (records, bytes) = self.measure(next)?;
        self.attempted = self.attempted.max(next);
        self.moved_at = Some(now_ns());
        self.acknowledge(next, records, bytes)
    }

    fn too_far(&self, last: u64, most: u64, known: bool) -> String {
        let path = self.parts.journal.path();
        if known {
            return format!(
                "it has record {last} of the outbox {}, and this run has delivered the records before {most} only: another copy of \
                 the state directory delivers too; stop one of them",
                path.display()
            );
        }
        format!(
            "it has record {last} of the outbox {}, which holds committed records before {most} only: another copy of the state \
             directory has delivered, or a loss of power has taken records; start with the newest copy, or start the sink again with \
             {} and what is then produced again",
            path.display(),
            drop_state(&self.parts.sink)
        )
    }

    fn too_early(&self, next: u64, pruned: u64) -> String {
        format!(
            "it has the records before {next} only, and those before {pruned} are delivered and removed from the outbox {}: it has \
             lost what it had acknowledged; restore it, set its position to {}, or start the sink again with {}",
            self.parts.journal.path().display(),
            pruned - 1,
            drop_state(&self.parts.sink)
        )
    }

    fn log_start(&self, next: Option<u64>) {
        let sink = self.parts.sink.as_str();
        let address = &self.parts.address;
        let own = self.first;
        match next {
            Some(next) => tracing::info!(
                sink,
                "sink \"{sink}\" ({address}): exactly once, from record {next} on: the position of the destination"
            ),
            None if self.parts.link.remembers() => tracing::info!(
                sink,
                "sink \"{sink}\" ({address}): exactly once, from record {own} on: the destination has no position yet, that of the outbox counts"
            ),
            None => tracing::info!(
                sink,
                "sink \"{sink}\" ({address}): at least once, from record {own} on: the position of the outbox"
            ),
        }
    }

    fn log_failure(&self) {
        let sink = self.parts.sink.as_str();
        let address = &self.parts.address;
        let cause = &self.last_error;
        let waiting = self.parts.progress.metrics().waiting_records;
        tracing::warn!(
            sink,
            "sink \"{sink}\" ({address}): {cause}; {waiting} records wait, and delivery is tried again"
        );
    }

    fn log_success(&mut self) {
        let failures = self.parts.link.succeeded();
        self.parts.progress.succeeded();
        if failures > 0 {
            let sink = self.parts.sink.as_str();
            let address = &self.parts.address;
            tracing::info!(
                sink,
                "sink \"{sink}\" ({address}): delivers again after {failures} failed attempts"
            );
        }
    }

    fn log_remaining(&self) {
        let waiting = self
            .parts
            .progress
            .situation()
            .committed
            .saturating_sub(self.first);
        if waiting > 0 && !self.parts.life.aborted() {
            let sink = self.parts.sink.as_str();
            let address = &self.parts.address;
            tracing::warn!(
                sink,
                "sink \"{sink}\" ({address}): {waiting} records wait for the next start, which delivers them"
            );
        }
    }

    /// Returns the failure of a destination that has refused the batch, or could not be reached.
    fn refused(&self, cause: Cause) -> FlowError {
        let records = self.batch.spans.len() as u64;
        let records = (records > 0).then(|| (self.first, self.first + records - 1));
        let sink = &self.parts.sink;
        let address = &self.parts.address;
        FlowError::Failed(refused(sink, address, records, cause))
    }

    /// Returns the failure of an outbox that cannot be read or moved.
    fn broken(&self, cause: Cause) -> FlowError {
        FlowError::State {
            path: self.parts.journal.path(),
            cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::control::Control;
    use crate::outbox::destination::{Destination, OutboxIdentity, connector};

    struct Taking(Arc<Mutex<usize>>);

    impl Destination for Taking {
        fn write(&mut self, batch: &Frames, _: u64, _: u64) -> Result<(), DeliveryError> {
            *self.0.lock().unwrap() += batch.spans.len();
            Ok(())
        }
    }

    #[test]
    fn a_thread_that_starts_late_counts_the_records_of_this_run_once() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), millstream_journal::Options::default()).unwrap();
        let writer = journal.writer().unwrap();
        writer.append(b"of an earlier run").unwrap();
        let control = Arc::new(Control::new(1, None));
        let settings = Settings::default();
        let progress = Progress::new("out", "a table", 1, (settings, false), &control.load);
        let taken = Arc::new(Mutex::new(0));
        let taking = Arc::clone(&taken);
        let connector = connector("a table", false, move |_: &OutboxIdentity| {
            Ok(Taking(Arc::clone(&taking)))
        });
        let identity = OutboxIdentity {
            flow: "flow".to_owned(),
            sink: "out".to_owned(),
            outbox: 1,
            refusals: crate::outbox::refusals::Refusals::default(),
        };
        let forwarder = Forwarder::new(Parts {
            sink: "out".to_owned(),
            address: "a table".to_owned(),
            journal,
            link: Link::new(Arc::new(connector), identity, settings.backoff),
            settings,
            refused: None,
            progress: Arc::clone(&progress),
            life: Arc::clone(&control.life),
            ends: Arc::clone(&control.ends),
        })
        .unwrap();
        control.ends.forwarder_begins();
        progress.appended(1, 11);
        writer.append(b"of this run").unwrap();
        progress.commit(2);
        progress.finish();
        forwarder.run();
        assert_eq!(*taken.lock().unwrap(), 2);
        let metrics = progress.metrics();
        assert_eq!((metrics.waiting_records, metrics.waiting_bytes), (0, 0));
    }
}
