//! The producer of librdkafka.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::statistics::Statistics;
use rdkafka::{Offset, TopicPartitionList};

use super::Notice;
use super::consumer::{failed, note_event, setting};
use super::context::Context;
use super::header_names::each_readable;
use super::rights::{self, Resources};
use super::settings::Settings;
use super::tokens;
use crate::error::Error;
use crate::message::{Parts, View};

/// For how long the producer waits for events at once.
const TICK: Duration = Duration::from_millis(1);

/// What the client says of a transaction whose offsets are refused.
const OF_OFFSETS: &str = "Failed to commit offsets to transaction";

/// Why a message was not taken, or a transaction failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may succeed later.
    Passing(Error),
    /// It cannot succeed.
    Lasting(Error),
    /// It cannot succeed with the messages that were sent, of which this is one; the broker refuses messages that were
    /// sent together as one.
    Message(Error),
}

/// Writes messages.
pub(crate) trait Producer: Send {
    /// Passes a message to the client, which sends it in the background. Returns false if its queue is full.
    fn send(&self, message: &View<'_>, topic: &str) -> Result<bool, Failure>;
    /// Serves the client for about a millisecond, or until nothing is in flight. Returns how many messages are in
    /// flight.
    fn serve(&self) -> usize;
    /// Sends what waits without delay.
    fn hurry(&self);
    /// Returns the first message that the broker did not take since the last call.
    fn take_failure(&self) -> Option<Failure>;
    /// Returns the messages that the broker has refused because of what they are since the last call, as bytes.
    fn take_refused(&self) -> Vec<Vec<u8>>;
    /// Returns what the client has reported about its connections.
    fn notice(&self) -> Option<Notice>;
}

/// Writes messages in transactions, with a number that is stored with them.
pub(crate) trait TransactionalProducer: Producer {
    /// Shuts out other producers of the same id, and ends their transactions.
    fn init(&self) -> Result<(), Failure>;
    /// Begins a transaction.
    fn begin(&self) -> Result<(), Failure>;
    /// Stores `number` in the transaction and commits it.
    fn commit(&self, number: i64) -> Result<(), Failure>;
    /// Returns the number that the last committed transaction has stored, if the broker still has it.
    fn stored(&self) -> Result<Option<i64>, Failure>;
}

/// The number of events that are read to find the reason of a failure. A client has fewer that wait.
const EVENTS_MAX: usize = 64;

/// The context of a producer, with the first failed message.
#[derive(Default)]
struct Deliveries {
    context: Context,
    /// The topic of the sink; a message may name another one.
    topic: String,
    first: Mutex<Option<Failure>>,
    /// The messages that the broker has refused because of what they are, as bytes.
    messages: Mutex<Vec<Vec<u8>>>,
}

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        self.context.generate_oauth_token(config)
    }
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.context.log(level, facility, text);
    }
    fn stats(&self, _: Statistics) {}
    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let Err((error, message)) = result else {
            return;
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        // What was given up because of another failure says nothing of its own.
        let code = error.rdkafka_error_code();
        let follows = matches!(
            code,
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight)
        );
        if follows {
            return;
        }
        let bytes = message.key_len() + message.payload_len();
        let is_own = message.topic() != self.topic;
        let failure = refused((message.topic(), is_own), message.key(), bytes, code);
        if matches!(failure, Failure::Message(_)) {
            let refused = self.messages.lock();
            let mut refused = refused.unwrap_or_else(PoisonError::into_inner);
            refused.push(written(message));
        }
        if first.is_none() {
            *first = Some(failure);
        }
    }
}

/// Returns a message that was written as bytes.
fn written(message: &BorrowedMessage<'_>) -> Vec<u8> {
    let parts = Parts {
        topic: message.topic(),
        // The client has chosen it by the key, and would again.
        partition: message.partition(),
        offset: -1,
        time_ms: message.timestamp().to_millis(),
        key: message.key(),
        value: message.payload(),
    };
    let mut frame = Vec::new();
    parts.encode(&mut frame, |each| {
        let headers = message.headers();
        headers.map_or(0, |headers| each_readable(headers, each))
    });
    frame
}

/// Returns the failure of a message for a topic, which it may name itself.
fn refused(
    (topic, is_own): (&str, bool),
    key: Option<&[u8]>,
    bytes: usize,
    code: Option<RDKafkaErrorCode>,
) -> Failure {
    let resources = Resources {
        topic,
        writes: true,
        ..Resources::default()
    };
    let reason = match code {
        Some(code) => match rights::named(code, resources) {
            Some(right) => format!("the user lacks a right: {right} ({code})"),
            None => code.to_string(),
        },
        None => "unknown error".to_owned(),
    };
    let key = match key {
        Some(key) => format!("key {:?}", String::from_utf8_lossy(key)),
        None => "no key".to_owned(),
    };
    let error = Error::Message {
        topic: topic.to_owned(),
        key,
        bytes,
        reason,
    };
    match code {
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
            | RDKafkaErrorCode::InvalidMessage
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::InvalidTimestamp
            | RDKafkaErrorCode::UnknownPartition,
        ) => Failure::Message(error),
        Some(
            RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::InvalidTopic,
        ) if is_own => Failure::Message(error),
        Some(
            RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::PolicyViolation
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed,
        ) => Failure::Lasting(error),
        _ => Failure::Passing(error),
    }
}

/// A producer of librdkafka.
struct Client {
    servers: String,
    producer: Arc<BaseProducer<Deliveries>>,
}

/// A producer with a transactional id, and a consumer that reads the stored numbers.
struct Transactions {
    client: Client,
    id: String,
    /// The partition under which the number is stored.
    topic: String,
    patience: Duration,
    /// After this time the broker ends a transaction by itself.
    timeout_ns: u64,
    begun_ns: Mutex<u64>,
    progress: Arc<BaseConsumer<Context>>,
}

/// Creates a producer that repeats attempts without end.
pub(crate) fn connect(
    servers: &str,
    settings: &Settings,
    topic: &str,
) -> Result<Box<dyn Producer>, Error> {
    let mut config = settings.producer(servers)?;
    if settings.get("message.timeout.ms").is_none() {
        config.set("message.timeout.ms", "0");
    }
    Ok(Box::new(Client::new(servers, (&config, settings), topic)?))
}

/// Creates a producer with a transactional id, which stores its number under partition 0 of `topic` for the group of
/// the same name.
pub(crate) fn connect_transactional(
    servers: &str,
    settings: &Settings,
    id: &str,
    topic: &str,
) -> Result<Box<dyn TransactionalProducer>, Error> {
    let mut config = settings.producer(servers)?;
    config.set("transactional.id", id);
    let timeout = settings.get("transaction.timeout.ms").unwrap_or("60000");
    let timeout_ms: u64 = timeout.parse().unwrap_or(60_000);
    let client = Client::new(servers, (&config, settings), topic)?;
    let mut reading = settings.connection(servers);
    reading
        .set("group.id", id)
        .set("isolation.level", "read_committed");
    let progress: Result<BaseConsumer<Context>, _> =
        reading.create_with_context(Context::with_tokens(settings.tokens()));
    let progress = progress.map_err(|error| setting(servers, error))?;
    let progress = Arc::new(progress);
    if settings.tokens().is_some() {
        tokens::attend(&progress, note_event);
    }
    Ok(Box::new(Transactions {
        client,
        id: id.to_owned(),
        topic: topic.to_owned(),
        patience: settings.patience(),
        timeout_ns: timeout_ms.saturating_mul(1_000_000),
        begun_ns: Mutex::new(0),
        progress,
    }))
}

impl Client {
    fn new(
        servers: &str,
        (config, settings): (&rdkafka::ClientConfig, &Settings),
        topic: &str,
    ) -> Result<Self, Error> {
        let deliveries = Deliveries {
            context: Context::with_tokens(settings.tokens()),
            topic: topic.to_owned(),
            ..Deliveries::default()
        };
        let producer: Result<BaseProducer<Deliveries>, _> = config.create_with_context(deliveries);
        let producer = producer.map_err(|error| setting(servers, error))?;
        let producer = Arc::new(producer);
        if settings.tokens().is_some() {
            tokens::attend(&producer, |producer, wait| producer.poll(wait));
        }
        Ok(Client {
            servers: servers.to_owned(),
            producer,
        })
    }

    fn deliveries(&self) -> &Deliveries {
        self.producer.context()
    }

    /// Returns the failure of a right that is missing, if the broker refuses with this code.
    fn denied(&self, code: RDKafkaErrorCode, id: &str) -> Option<Failure> {
        let resources = Resources {
            topic: &self.deliveries().topic,
            writes: true,
            group: id,
            transactional_id: id,
        };
        rights::missing(&self.servers, code, resources).map(Failure::Lasting)
    }
}

impl Producer for Client {
    fn send(&self, message: &View<'_>, topic: &str) -> Result<bool, Failure> {
        let to = match message.topic() {
            "" => topic,
            other => other,
        };
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(to);
        record.key = message.key();
        record.payload = message.value();
        record.timestamp = message.time_ms();
        record.partition = (message.partition() >= 0).then(|| message.partition());
        record.headers = headers(message).map_err(Failure::Lasting)?;
        match self.producer.send(record) {
            Ok(()) => Ok(true),
            Err((error, _)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull) => Ok(false),
                code => {
                    let bytes = [message.key(), message.value()];
                    let bytes = bytes.iter().flatten().map(|part| part.len()).sum();
                    Err(refused((to, to != topic), message.key(), bytes, code))
                }
            },
        }
    }

    fn serve(&self) -> usize {
        self.producer.poll(TICK);
        self.producer.in_flight_count().max(0) as usize
    }

    fn hurry(&self) {
        // It only asks the client to send what it holds back; the wait is that of `serve`.
        let _ = self.producer.flush(Duration::ZERO);
        self.producer.poll(Duration::ZERO);
    }

    fn take_failure(&self) -> Option<Failure> {
        // Messages fail because the producer has, or wait: its own error says more.
        let fatal = self.producer.client().fatal_error();
        if let Some(denied) = fatal.and_then(|(code, _)| self.denied(code, "")) {
            return Some(denied);
        }
        let first = self.deliveries().first.lock();
        first.unwrap_or_else(PoisonError::into_inner).take()
    }

    fn take_refused(&self) -> Vec<Vec<u8>> {
        let refused = self.deliveries().messages.lock();
        std::mem::take(&mut *refused.unwrap_or_else(PoisonError::into_inner))
    }

    fn notice(&self) -> Option<Notice> {
        self.deliveries().context.last()
    }
}

/// Returns the headers of a message for the client.
fn headers(message: &View<'_>) -> Result<Option<OwnedHeaders>, Error> {
    let mut headers = None;
    message.each_header(|key, value| {
        let made = headers.take().unwrap_or_else(OwnedHeaders::new);
        headers = Some(made.insert(Header { key, value }));
    })?;
    Ok(headers)
}

/// Whether a producer of the same id has taken over.
fn is_fenced(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
    )
}

impl Transactions {
    /// Returns the failure of a call of the client.
    fn failure(&self, error: &KafkaError) -> Failure {
        // The reasons of connections are reported as events, after other events, one by each poll.
        for _ in 0..EVENTS_MAX {
            self.client.producer.poll(Duration::ZERO);
        }
        let servers = self.client.servers.clone();
        let KafkaError::Transaction(transaction) = error else {
            return self.by_connection(error);
        };
        let code = transaction.code();
        let reason = transaction.string();
        if let Some(denied) = self.client.denied(code, &self.id) {
            return denied;
        }
        match code {
            code if is_fenced(code) => self.fenced(reason),
            RDKafkaErrorCode::InvalidTransactionTimeout => {
                Failure::Lasting(Error::Refused { servers, reason })
            }
            RDKafkaErrorCode::OperationTimedOut => self.by_connection(error),
            _ => Failure::Passing(Error::Transaction { servers, reason }),
        }
    }

    /// Returns the failure of a producer that was shut out.
    fn fenced(&self, reason: String) -> Failure {
        let id = self.id.clone();
        let error = Error::Fenced { id, reason };
        // The broker also shuts a producer out whose transaction has taken too long.
        let begun = *self.begun_ns.lock().unwrap_or_else(PoisonError::into_inner);
        if begun > 0 && now_ns().saturating_sub(begun) >= self.timeout_ns {
            Failure::Passing(error)
        } else {
            Failure::Lasting(error)
        }
    }

    /// Returns the failure to store the number: that is an offset of the topic, for which a client needs the rights of
    /// a reader.
    fn offset_failure(&self, error: &KafkaError) -> Failure {
        let resources = Resources {
            topic: &self.topic,
            ..Resources::default()
        };
        // A transaction that has failed before fails here once more, with the words of its first failure.
        let own = match error {
            KafkaError::Transaction(own) if own.string().contains(OF_OFFSETS) => Some(own.code()),
            _ => None,
        };
        let of_topic = own.filter(|code| *code == RDKafkaErrorCode::TopicAuthorizationFailed);
        let denied =
            of_topic.and_then(|code| rights::missing(&self.client.servers, code, resources));
        denied.map_or_else(|| self.failure(error), Failure::Lasting)
    }

    /// Returns the failure of a call about the stored number. Where the right to the group is missing the call only
    /// times out: the client reports the reason as an event.
    fn progress_failure(&self, error: &KafkaError) -> Failure {
        let context = self.progress.context();
        context.note(error);
        for _ in 0..EVENTS_MAX {
            note_event(&self.progress, Duration::ZERO);
        }
        let denied = context.denied();
        denied
            .and_then(|code| self.client.denied(code, &self.id))
            .unwrap_or_else(|| self.failure(error))
    }

    fn by_connection(&self, error: &KafkaError) -> Failure {
        let context = &self.client.deliveries().context;
        match failed(&self.client.servers, context, error) {
            refused @ Error::Refused { .. } => Failure::Lasting(refused),
            other => Failure::Passing(other),
        }
    }

    fn offsets(&self, offset: Offset) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        // It fails for an offset that is no number only.
        let _ = list.add_partition_offset(&self.topic, 0, offset);
        list
    }
}

impl Producer for Transactions {
    fn send(&self, message: &View<'_>, topic: &str) -> Result<bool, Failure> {
        self.client.send(message, topic)
    }
    fn serve(&self) -> usize {
        self.client.serve()
    }
    fn hurry(&self) {
        self.client.hurry();
    }
    fn take_failure(&self) -> Option<Failure> {
        let failure = self.client.take_failure()?;
        // Messages fail because the producer has: its own error says more.
        match self.client.producer.client().fatal_error() {
            Some((code, reason)) if is_fenced(code) => Some(self.fenced(reason)),
            Some((code, _)) => Some(self.client.denied(code, &self.id).unwrap_or(failure)),
            None => Some(failure),
        }
    }
    fn take_refused(&self) -> Vec<Vec<u8>> {
        self.client.take_refused()
    }

    fn notice(&self) -> Option<Notice> {
        self.client.notice()
    }
}

impl TransactionalProducer for Transactions {
    fn init(&self) -> Result<(), Failure> {
        let begun = self.client.producer.init_transactions(self.patience);
        begun.map_err(|error| self.failure(&error))?;
        let metadata = self
            .progress
            .fetch_metadata(Some(&self.topic), self.patience);
        let metadata = metadata.map_err(|error| self.failure(&error))?;
        let errors = metadata.topics().iter().filter_map(|topic| topic.error());
        let mut codes = errors.map(RDKafkaErrorCode::from);
        if let Some(denied) = codes.find_map(|code| self.client.denied(code, &self.id)) {
            return Err(denied);
        }
        let found = metadata
            .topics()
            .iter()
            .any(|topic| !topic.partitions().is_empty());
        if found {
            Ok(())
        } else {
            Err(Failure::Lasting(Error::NoTopic {
                servers: self.client.servers.clone(),
                topic: self.topic.clone(),
            }))
        }
    }

    fn begin(&self) -> Result<(), Failure> {
        *self.begun_ns.lock().unwrap_or_else(PoisonError::into_inner) = now_ns();
        let begun = self.client.producer.begin_transaction();
        begun.map_err(|error| self.failure(&error))
    }

    fn commit(&self, number: i64) -> Result<(), Failure> {
        let group = self.progress.group_metadata();
        let group = group.ok_or_else(|| {
            Failure::Passing(Error::Transaction {
                servers: self.client.servers.clone(),
                reason: "the client has no group".to_owned(),
            })
        })?;
        let producer = &self.client.producer;
        let offsets = self.offsets(Offset::Offset(number));
        let sent = producer.send_offsets_to_transaction(&offsets, &group, self.patience);
        sent.map_err(|error| self.offset_failure(&error))?;
        let committed = producer.commit_transaction(self.patience);
        committed.map_err(|error| self.failure(&error))
    }

    fn stored(&self) -> Result<Option<i64>, Failure> {
        let asked = self.offsets(Offset::Invalid);
        let found = self.progress.committed_offsets(asked, self.patience);
        let found = found.map_err(|error| self.progress_failure(&error))?;
        for element in found.elements() {
            let known = element.error();
            known.map_err(|error| self.progress_failure(&error))?;
            if let Offset::Offset(number) = element.offset() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}
