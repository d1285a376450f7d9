//! Delivery from an outbox in transactions.
//!
//! The transactional id is that of the outbox: connecting shuts out any other producer of the same outbox, and ends
//! what it has not committed. The number of the last record is stored in the same transaction, as the offset of the
//! group of the same name for partition 0 of the sink's topic, so that every tool for Kafka shows it. Brokers forget
//! such an offset after `offsets.retention.minutes`; then the cursor of the outbox counts.
//!
//! Invariant: a transaction holds the records from `first` to `last` only if the stored number is `first - 1`.

use millstream_flow::Frames;
use millstream_flow::clock::now_ns;
use millstream_flow::outbox::{Connector, DeliveryError, Destination, OutboxIdentity};

use super::target::Target;
use crate::client::Notice;
use crate::client::producer::{Failure, TransactionalProducer, connect_transactional};
use crate::error::Error;
use crate::message::View;

/// Opens connections to the brokers.
pub(super) struct ByTransactions {
    target: Target,
}

impl ByTransactions {
    pub(super) fn new(target: Target) -> Self {
        ByTransactions { target }
    }
}

impl Connector for ByTransactions {
    fn describe(&self) -> String {
        self.target.describe()
    }

    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        let target = &self.target;
        let id = format!("millstream.{}.{}.{}", outbox.flow, outbox.sink, outbox.id());
        let producer = connect_transactional(&target.servers, &target.settings, &id, &target.topic);
        let producer = producer.map_err(DeliveryError::fatal)?;
        producer.init().map_err(delivery_error)?;
        Ok(Box::new(Connection {
            producer,
            topic: target.topic.clone(),
            servers: target.servers.clone(),
            patience_ns: target.settings.patience().as_nanos() as u64,
        }))
    }

    fn remembers(&self) -> bool {
        true
    }

    fn record_bytes_max(&self) -> Option<usize> {
        Some(self.target.record_bytes_max())
    }
}

fn delivery_error(failure: Failure) -> DeliveryError {
    match failure {
        Failure::Passing(error) => DeliveryError::retry(error),
        Failure::Lasting(error) => DeliveryError::fatal(error),
        // The transaction is aborted: no message of it is read.
        Failure::Message(error) => DeliveryError::refused(error),
    }
}

/// A producer that has shut out all others.
struct Connection {
    producer: Box<dyn TransactionalProducer>,
    topic: String,
    servers: String,
    patience_ns: u64,
}

impl Connection {
    /// Sends the messages of a batch and waits until they are acknowledged.
    fn send(&self, batch: &Frames) -> Result<(), Failure> {
        let deadline = now_ns() + self.patience_ns;
        for frame in batch.iter() {
            let message = View::of(frame).map_err(Failure::Lasting)?;
            while !self.producer.send(&message, &self.topic)? {
                self.wait(deadline)?;
            }
        }
        self.producer.hurry();
        while self.producer.serve() > 0 {
            self.check(deadline)?;
        }
        self.producer.take_failure().map_or(Ok(()), Err)
    }

    fn wait(&self, deadline: u64) -> Result<(), Failure> {
        self.producer.serve();
        self.check(deadline)
    }

    fn check(&self, deadline: u64) -> Result<(), Failure> {
        if let Some(failure) = self.producer.take_failure() {
            return Err(failure);
        }
        if now_ns() < deadline {
            return Ok(());
        }
        let reason = match self.producer.notice() {
            Some(Notice::Passing(reason) | Notice::Refused(reason)) => reason,
            None => "messages are not acknowledged in time".to_owned(),
        };
        let servers = self.servers.clone();
        Err(Failure::Passing(Error::Unreachable { servers, reason }))
    }
}

impl Destination for Connection {
    fn write(&mut self, batch: &Frames, _: u64, last: u64) -> Result<(), DeliveryError> {
        // The position was asked for after all others were shut out, and each transaction since then has stored its
        // own.
        let written = self.producer.begin();
        let written = written.and_then(|()| self.send(batch));
        // The offset of a group is that of the next record.
        let written = written.and_then(|()| self.producer.commit(last as i64 + 1));
        written.map_err(delivery_error)
    }

    fn skip(&mut self, number: u64) -> Result<(), DeliveryError> {
        let stored = self.producer.begin();
        let stored = stored.and_then(|()| self.producer.commit(number as i64 + 1));
        stored.map_err(delivery_error)
    }

    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        let next = self.producer.stored().map_err(delivery_error)?;
        Ok(next.and_then(|next| u64::try_from(next).ok()?.checked_sub(1)))
    }
}
