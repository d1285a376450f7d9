//! The outbox of a run without a state directory: each flush waits until everything is delivered.
//!
//! It is in memory and ends with the run. Its records have numbers from 0.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::now_ns;
use crate::control::Control;
use crate::error::{Cause, chain};
use crate::framing::Frames;
use crate::mutex::lock;
use crate::outbox::destination::{DeliveryError, check_sizes, refused};
use crate::outbox::link::{Link, Position};
use crate::outbox::progress::Progress;
use crate::outbox::settings::{CHECK_INTERVAL, STOP_NS, Settings};
use crate::sink::{Refused, Writer};

/// The part that the workers of a run share.
pub(super) struct Direct {
    sink: String,
    link: Link,
    progress: Arc<Progress>,
    control: Arc<Control>,
    /// The number of the next record.
    next: u64,
    /// The refused records that are no dead letters yet; `None` if they become none.
    refused: Option<Vec<Refused>>,
    has_connected: bool,
    /// The run was stopped with a batch that could not be delivered: nothing after it is delivered either.
    has_dropped: bool,
}

impl Direct {
    pub(super) fn new(
        sink: &str,
        link: Link,
        progress: Arc<Progress>,
        keeps_refused: bool,
        control: &Arc<Control>,
    ) -> Self {
        Direct {
            sink: sink.to_owned(),
            link,
            progress,
            control: Arc::clone(control),
            next: 0,
            refused: keeps_refused.then(Vec::new),
            has_connected: false,
            has_dropped: false,
        }
    }

    /// Delivers a batch and leaves it empty, however long that takes.
    fn deliver(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        let records = batch.spans.len();
        let bytes = batch.iter().map(<[u8]>::len).sum();
        if records == 0 {
            return Ok(());
        }
        self.progress.appended(records, bytes);
        self.deliver_part(batch)?;
        batch.spans.clear();
        batch.data.clear();
        self.progress.left(records, bytes, None);
        Ok(())
    }

    /// Delivers a batch or a part of one that was refused.
    fn deliver_part(&mut self, batch: &Frames) -> Result<(), Cause> {
        let records = batch.spans.len();
        let mut stop_seen = None;
        let mut skips = false;
        while !self.has_dropped {
            let tried = if skips {
                self.skip()
            } else {
                self.attempt(batch)
            };
            let cause = match tried {
                Ok(()) => break,
                Err(DeliveryError::Fatal(cause)) => return Err(self.failure(records, cause)),
                Err(DeliveryError::Refused(_)) if records > 1 => {
                    let mut second = batch.clone();
                    let first = second.take_first(records / 2);
                    self.deliver_part(&first)?;
                    return self.deliver_part(&second);
                }
                Err(DeliveryError::Refused(cause)) if self.link.skips_refused() => {
                    let reason = chain(&*cause).to_string();
                    self.progress.refused(self.next, &reason);
                    self.keep(self.next, batch.get(0), reason);
                    skips = true;
                    continue;
                }
                Err(DeliveryError::Refused(cause)) => return Err(self.failure(records, cause)),
                Err(DeliveryError::Retry(cause)) => cause,
            };
            self.progress.failed();
            if self.link.failures() == 0 {
                let sink = self.sink.as_str();
                tracing::warn!(
                    sink,
                    "sink \"{sink}\": {}; the delivery is repeated",
                    chain(&*cause)
                );
            }
            if self.link.failed(&cause) {
                return Err(self.failure(records, cause));
            }
            if !self.pause(&mut stop_seen) {
                let sink = self.sink.as_str();
                tracing::warn!(
                    sink,
                    "sink \"{sink}\": stopped with {records} records that the destination has not taken: they are dropped"
                );
                self.has_dropped = true;
            }
        }
        Ok(())
    }

    /// Makes the destination skip the next record, which it has refused.
    fn skip(&mut self) -> Result<(), DeliveryError> {
        self.link.connect()?;
        self.link.skip(self.next)?;
        self.next += 1;
        self.link.succeeded();
        self.progress.succeeded();
        Ok(())
    }

    /// Keeps a record that was refused for its dead letter, if there is one.
    fn keep(&mut self, number: u64, record: &[u8], reason: String) {
        if let Some(refused) = &mut self.refused {
            refused.push(Refused {
                number: Some(number),
                reason,
                record: record.to_vec(),
            });
        }
    }

    fn attempt(&mut self, batch: &Frames) -> Result<(), DeliveryError> {
        let records = batch.spans.len() as u64;
        let position = self.link.connect()?;
        let last = match (position, self.has_connected) {
            (Position::Next(next), false) => {
                self.next = next;
                next + records - 1
            }
            _ => self.next + records - 1,
        };
        self.has_connected = true;
        // An attempt that seemed to fail may have succeeded.
        let first = self.next;
        let mut left_out = Vec::new();
        if position <= Position::Next(last) {
            left_out = self.link.write(batch, first, last)?;
        }
        self.next = last + 1;
        self.progress.delivered(records as usize, &left_out);
        for (number, reason) in left_out {
            self.keep(number, batch.get((number - first) as usize), reason);
        }
        let failures = self.link.succeeded();
        self.progress.succeeded();
        if failures > 0 {
            let sink = self.sink.as_str();
            tracing::info!(
                sink,
                "sink \"{sink}\": delivers again after {failures} failed attempts"
            );
        }
        Ok(())
    }

    /// Waits for the next attempt; false if the run stops before.
    fn pause(&self, stop_seen: &mut Option<u64>) -> bool {
        let until = now_ns() + self.link.delay().as_nanos() as u64;
        while now_ns() < until {
            if self.control.aborted() {
                return false;
            }
            if self.control.stopping() {
                let since = *stop_seen.get_or_insert_with(now_ns);
                if now_ns().saturating_sub(since) > STOP_NS {
                    return false;
                }
            }
            let left = Duration::from_nanos(until.saturating_sub(now_ns()));
            self.progress.pause(left.min(CHECK_INTERVAL));
        }
        true
    }

    fn failure(&self, records: usize, cause: Cause) -> Cause {
        let last = self.next + records as u64 - 1;
        let address = self.link.address();
        refused(&self.sink, &address, Some((self.next, last)), cause).into()
    }
}

/// One worker of a run without a state directory.
pub(super) struct DirectWriter {
    direct: Arc<Mutex<Direct>>,
    control: Arc<Control>,
    settings: Settings,
    pending: Frames,
    limit: Option<usize>,
    address: String,
}

impl DirectWriter {
    pub(super) fn new(
        direct: Arc<Mutex<Direct>>,
        settings: Settings,
        (limit, address): (Option<usize>, String),
    ) -> Self {
        let control = Arc::clone(&lock(&direct).control);
        DirectWriter {
            direct,
            control,
            settings,
            pending: Frames::default(),
            limit,
            address,
        }
    }
}

impl Writer<Frames> for DirectWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        check_sizes(batch, self.limit, &self.address)?;
        let mut taken = std::mem::take(batch);
        for frame in taken.iter() {
            if self.pending.spans.len() >= self.settings.batch_records
                || self.pending.data.len() >= self.settings.batch_bytes
            {
                self.flush()?;
            }
            self.pending.append(|out| out.extend_from_slice(frame))?;
        }
        taken.spans.clear();
        taken.data.clear();
        *batch = taken;
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        if self.pending.spans.is_empty() {
            return Ok(());
        }
        let direct = &self.direct;
        let pending = &mut self.pending;
        let mut outcome = Ok(());
        self.control
            .outside(&mut || outcome = lock(direct).deliver(pending));
        outcome
    }
    fn take_refused(&mut self) -> Result<Vec<Refused>, Cause> {
        let mut direct = lock(&self.direct);
        Ok(direct
            .refused
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default())
    }
}
