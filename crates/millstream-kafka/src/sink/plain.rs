//! Delivery without transactions: messages are sent as they come, and acknowledged before their epoch is committed.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_flow::Frames;
use millstream_flow::clock::now_ns;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Refused, Sink, Writer};

use super::target::Target;
use crate::client::Notice;
use crate::client::producer::{Failure, Producer, connect};
use crate::error::Error;
use crate::message::View;

/// For how long a run that was asked to stop waits for acknowledgements.
const STOP_NS: u64 = 5_000_000_000;

/// The sink.
pub(super) struct Plain {
    target: Target,
    /// Whether messages that the broker refuses are skipped.
    skips: AtomicBool,
    /// Whether they become dead letters.
    keeps: AtomicBool,
}

impl Plain {
    pub(super) fn new(target: Target) -> Self {
        Plain {
            target,
            skips: AtomicBool::default(),
            keeps: AtomicBool::default(),
        }
    }
}

impl Sink<Frames> for Plain {
    fn describe(&self) -> String {
        self.target.describe()
    }

    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let target = &self.target;
        Ok(Box::new(PlainWriter {
            producer: connect(&target.servers, &target.settings, &target.topic)?,
            skips: self.skips.load(Ordering::Relaxed),
            keeps: self.keeps.load(Ordering::Relaxed),
            refused: RefCell::default(),
            topic: target.topic.clone(),
            servers: target.servers.clone(),
            bytes_max: target.record_bytes_max(),
            control: Arc::clone(control),
        }))
    }

    fn skip_refused(&self, keeps: bool) -> bool {
        self.skips.store(true, Ordering::Relaxed);
        self.keeps.fetch_or(keeps, Ordering::Relaxed);
        true
    }

    fn record_bytes_max(&self) -> Option<usize> {
        Some(self.target.record_bytes_max())
    }
}

/// A producer of one worker.
struct PlainWriter {
    producer: Box<dyn Producer>,
    skips: bool,
    keeps: bool,
    /// Those that are no dead letters yet.
    refused: RefCell<Vec<Refused>>,
    topic: String,
    servers: String,
    bytes_max: usize,
    control: Arc<Control>,
}

impl PlainWriter {
    /// Waits until all messages are acknowledged or refused.
    fn drain(&self, stop_seen: &mut Option<u64>) -> Result<(), Cause> {
        self.producer.hurry();
        while self.producer.serve() > 0 {
            self.wait(stop_seen)?;
        }
        Ok(())
    }

    /// Fails with what has failed. The broker refuses messages that were sent together as one: each of them is sent
    /// again alone, so that the one which is refused holds up no other, and the error names it.
    fn check(&self, stop_seen: &mut Option<u64>) -> Result<(), Cause> {
        match self.producer.take_failure() {
            None => {}
            Some(Failure::Passing(error) | Failure::Lasting(error)) => return Err(error.into()),
            Some(Failure::Message(_)) => self.send_again(stop_seen)?,
        }
        self.wait(stop_seen)
    }

    fn send_again(&self, stop_seen: &mut Option<u64>) -> Result<(), Cause> {
        self.drain(stop_seen)?;
        for frame in self.producer.take_refused() {
            self.producer.take_failure();
            match self.producer.send(&View::of(&frame)?, &self.topic) {
                Ok(_) => self.drain(stop_seen)?,
                Err(failure) => self.settle(failure, &frame)?,
            }
            self.producer.take_refused();
            if let Some(failure) = self.producer.take_failure() {
                self.settle(failure, &frame)?;
            }
        }
        Ok(())
    }

    /// Handles the failure of a message that was sent alone, as `frame` has it.
    fn settle(&self, failure: Failure, frame: &[u8]) -> Result<(), Cause> {
        match failure {
            Failure::Message(error) if self.skips => {
                let what = if self.keeps {
                    "becomes a dead letter"
                } else {
                    "is skipped"
                };
                tracing::warn!("kafka {}: a message {what}: {error}", self.servers);
                if self.keeps {
                    self.refused.borrow_mut().push(Refused {
                        number: None,
                        reason: error.to_string(),
                        record: frame.to_vec(),
                    });
                }
                Ok(())
            }
            Failure::Passing(error) | Failure::Lasting(error) | Failure::Message(error) => {
                Err(error.into())
            }
        }
    }

    /// Fails if the broker refuses the client, or the run stops.
    fn wait(&self, stop_seen: &mut Option<u64>) -> Result<(), Cause> {
        let reason = match self.producer.notice() {
            Some(Notice::Refused(reason)) => {
                let servers = self.servers.clone();
                return Err(Error::Refused { servers, reason }.into());
            }
            Some(Notice::Passing(reason)) => reason,
            None => "messages are not acknowledged".to_owned(),
        };
        if self.control.stopping() || self.control.aborted() {
            let since = *stop_seen.get_or_insert_with(now_ns);
            if now_ns().saturating_sub(since) > STOP_NS {
                let servers = self.servers.clone();
                return Err(Error::Unreachable { servers, reason }.into());
            }
        }
        Ok(())
    }
}

impl Writer<Frames> for PlainWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        let mut stop_seen = None;
        for frame in batch.iter() {
            if frame.len() > self.bytes_max {
                let bytes = frame.len();
                let limit = self.bytes_max;
                return Err(format!(
                    "a record of {bytes} bytes is too large for kafka {}, which takes {limit}",
                    self.topic
                )
                .into());
            }
            let message = View::of(frame)?;
            loop {
                match self.producer.send(&message, &self.topic) {
                    Ok(true) => break,
                    Ok(false) => {
                        self.producer.serve();
                        self.check(&mut stop_seen)?;
                    }
                    Err(failure) => {
                        self.settle(failure, frame)?;
                        break;
                    }
                }
            }
        }
        batch.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Cause> {
        // Sent by the client in the background; what failed before is reported now.
        self.producer.hurry();
        self.check(&mut None)
    }

    fn prepare(&mut self, _: u64) -> Result<Option<Vec<u8>>, Cause> {
        let mut stop_seen = None;
        self.producer.hurry();
        while self.producer.serve() > 0 {
            self.check(&mut stop_seen)?;
        }
        self.check(&mut stop_seen)?;
        Ok(None)
    }

    fn close(&mut self) -> Result<Option<Vec<u8>>, Cause> {
        self.prepare(0)
    }

    fn take_refused(&mut self) -> Result<Vec<Refused>, Cause> {
        Ok(self.refused.take())
    }
}
