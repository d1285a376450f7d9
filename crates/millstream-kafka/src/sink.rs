//! The sink: messages in transactions from an outbox, or without transactions as they come.

mod plain;
mod target;
mod transactional;

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::outbox::{Backoff, Outbox};
use millstream_flow::sink::Sink;
use millstream_flow::{Frames, codec};

use crate::client::settings::Settings;
use crate::message::Outgoing;
use plain::Plain;
use target::Target;
use transactional::ByTransactions;

/// The largest number of records and bytes of a transaction.
const TRANSACTION_RECORDS: usize = 10_000;
const TRANSACTION_BYTES: usize = 8 << 20;

/// A sink of messages. See [`write()`].
#[derive(Clone, Debug)]
pub struct WriteKafka {
    target: Target,
    exactly_once: bool,
    max_bytes: Option<u64>,
    max_age: Option<Duration>,
    backoff: Backoff,
}

/// Writes messages to a topic. `servers` are the addresses of some brokers, separated by commas.
///
/// With a state directory each message is written exactly once: the flow appends it to an outbox, and committed records
/// are written in transactions, with the number of the last one. Readers need `isolation.level=read_committed`.
pub fn write(servers: impl Into<String>, topic: impl Into<String>) -> WriteKafka {
    WriteKafka {
        target: Target {
            servers: servers.into(),
            topic: topic.into(),
            settings: Settings::default(),
        },
        exactly_once: true,
        max_bytes: None,
        max_age: None,
        backoff: Backoff::default(),
    }
}

impl WriteKafka {
    /// Sets librdkafka's settings. They replace the connector's own.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.target.settings = settings;
        self
    }

    /// Writes messages without transactions and without an outbox: they are sent at once, and acknowledged by all
    /// replicas before their epoch is committed. After a crash some are written again.
    #[must_use]
    pub fn at_least_once(mut self) -> Self {
        self.exactly_once = false;
        self
    }

    /// Makes the sources of the flow pause while more than `bytes` wait in the outbox; 1 GiB by default.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Makes the sources of the flow pause while an older message waits in the outbox; there is no limit by default.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// Sets the delays between attempts to deliver from the outbox.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Returns a sink of frames that are messages as [`Outgoing::encode`] writes them.
    #[must_use]
    pub fn frames(self) -> Arc<dyn Sink<Frames>> {
        if !self.exactly_once {
            return Arc::new(Plain::new(self.target));
        }
        let mut outbox = Outbox::new(ByTransactions::new(self.target))
            .batch(TRANSACTION_RECORDS)
            .batch_bytes(TRANSACTION_BYTES)
            .backoff(self.backoff);
        if let Some(bytes) = self.max_bytes {
            outbox = outbox.max_bytes(bytes);
        }
        if let Some(age) = self.max_age {
            outbox = outbox.max_age(age);
        }
        Arc::new(outbox)
    }

    /// Returns a sink of [`Outgoing`] messages.
    #[must_use]
    pub fn messages(self) -> impl Sink<Vec<Outgoing>> {
        codec::encode(self.frames(), Outgoing::encode)
    }
}
