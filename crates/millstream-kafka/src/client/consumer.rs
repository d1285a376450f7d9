//! The consumer of librdkafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_flow::poller::Wake;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::context::Context;
use super::header_names::each_readable;
use super::settings::{Settings, without_secret};
use super::{Consumer, Incoming, Notice, Polled, Queue, Topic, TopicPartition, Trouble};
use crate::error::Error;

/// The number of events of the client that are served at once. An event that is served looks like an empty queue.
const EVENTS: usize = 32;
/// The number of events among which the identity of a topic is, after its metadata were asked for.
const METADATA_EVENTS: usize = 10_000;
/// How long an error of a connection may be later than the error of the call that needed it.
const REASON_WAIT: Duration = Duration::from_millis(50);

/// A consumer, and what its calls need.
struct Client {
    servers: String,
    patience: Duration,
    consumer: Arc<BaseConsumer<Context>>,
    /// Whether events wait in the main queue of the consumer.
    has_events: Arc<AtomicBool>,
}

/// Creates a consumer for so many partitions. It connects when it is used.
pub(crate) fn connect(
    servers: &str,
    group: &str,
    settings: &Settings,
    partitions: usize,
) -> Result<Arc<dyn Consumer>, Error> {
    create(
        servers,
        settings.consumer(servers, group, partitions)?,
        settings,
    )
}

/// Creates a consumer for questions about topics, which fetches nothing.
pub(crate) fn connect_for_questions(
    servers: &str,
    group: &str,
    settings: &Settings,
) -> Result<Arc<dyn Consumer>, Error> {
    create(servers, settings.questions(servers, group)?, settings)
}

fn create(
    servers: &str,
    config: ClientConfig,
    settings: &Settings,
) -> Result<Arc<dyn Consumer>, Error> {
    let consumer: Result<BaseConsumer<Context>, _> = config.create_with_context(Context::default());
    let mut consumer = consumer.map_err(|error| setting(servers, error))?;
    let has_events = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&has_events);
    consumer.set_nonempty_callback(move || flag.store(true, Ordering::Release));
    Ok(Arc::new(Client {
        servers: servers.to_owned(),
        patience: settings.patience(),
        consumer: Arc::new(consumer),
        has_events,
    }))
}

/// Returns the error of a client that could not be created.
pub(super) fn setting(servers: &str, error: KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, reason, name, value) => {
            let reason = without_secret(&name, &value, &reason);
            Error::Setting { name, reason }
        }
        other => Error::Client {
            servers: servers.to_owned(),
            reason: other.to_string(),
        },
    }
}

/// Returns the error of a call that did not succeed, by what the client has last reported of its connections.
pub(super) fn failed(servers: &str, context: &Context, error: &KafkaError) -> Error {
    let servers = servers.to_owned();
    let said = match error.rdkafka_error_code() {
        Some(code) => code.to_string(),
        None => error.to_string(),
    };
    match context.last() {
        Some(Notice::Refused(reason)) => Error::Refused { servers, reason },
        Some(Notice::Passing(reason)) if is_connection(error) => {
            Error::Unreachable { servers, reason }
        }
        _ if is_connection(error) => Error::Unreachable {
            servers,
            reason: said,
        },
        _ => Error::Client {
            servers,
            reason: said,
        },
    }
}

fn is_connection(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::TimedOutQueue
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::NetworkException
        )
    )
}

impl Client {
    fn failed(&self, error: &KafkaError) -> Error {
        if is_connection(error) && self.consumer.context().last().is_none() {
            self.consumer.poll(REASON_WAIT);
        }
        self.has_events.store(true, Ordering::Release);
        self.serve();
        failed(&self.servers, self.consumer.context(), error)
    }

    /// Serves the events of the client: logs, errors, statistics.
    fn serve(&self) {
        if self.has_events.swap(false, Ordering::AcqRel) {
            for _ in 0..EVENTS {
                // They are reported to the context; messages do not come by this queue.
                let _ = self.consumer.poll(Duration::ZERO);
            }
        }
    }

    /// Returns the identity of a topic whose metadata were asked for last, if the client has reported it since.
    fn topic_id(&self, topic: &str) -> Option<String> {
        let mut id = None;
        for _ in 0..METADATA_EVENTS {
            let _ = self.consumer.poll(Duration::ZERO);
            id = self.consumer.context().take_topic_id(topic);
            if id.is_some() {
                break;
            }
        }
        id
    }

    fn list((topic, partition): TopicPartition<'_>, offset: Offset) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        // It fails for an offset that is no number only.
        let _ = list.add_partition_offset(topic, partition, offset);
        list
    }

    fn only(list: &TopicPartitionList) -> Result<Option<i64>, KafkaError> {
        for element in list.elements() {
            element.error()?;
            if let Offset::Offset(offset) = element.offset() {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }
}

impl Consumer for Client {
    fn topic(&self, topic: &str) -> Result<Topic, Error> {
        let metadata = self.consumer.fetch_metadata(Some(topic), self.patience);
        let metadata = metadata.map_err(|error| self.failed(&error))?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        let missing = || Error::NoTopic {
            servers: self.servers.clone(),
            topic: topic.to_owned(),
        };
        let found = found.ok_or_else(missing)?;
        match found.error().map(RDKafkaErrorCode::from) {
            None => {}
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                return Err(missing());
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                return Err(Error::Refused {
                    servers: self.servers.clone(),
                    reason: format!("no right to read the topic \"{topic}\""),
                });
            }
            Some(code) => return Err(self.failed(&KafkaError::MetadataFetch(code))),
        }
        match found.partitions().len() {
            0 => Err(missing()),
            count => Ok(Topic {
                partitions: count,
                id: self.topic_id(topic),
            }),
        }
    }

    fn bounds(&self, (topic, partition): TopicPartition<'_>) -> Result<(i64, i64), Error> {
        let bounds = self
            .consumer
            .fetch_watermarks(topic, partition, self.patience);
        bounds.map_err(|error| self.failed(&error))
    }

    fn offset_at(&self, of: TopicPartition<'_>, time_ms: i64) -> Result<Option<i64>, Error> {
        let times = Self::list(of, Offset::Offset(time_ms));
        let found = self.consumer.offsets_for_times(times, self.patience);
        let found = found.and_then(|list| Self::only(&list));
        found.map_err(|error| self.failed(&error))
    }

    fn group_offset(&self, of: TopicPartition<'_>) -> Result<Option<i64>, Error> {
        let asked = Self::list(of, Offset::Invalid);
        let found = self.consumer.committed_offsets(asked, self.patience);
        let found = found.and_then(|list| Self::only(&list));
        found.map_err(|error| self.failed(&error))
    }

    fn commit(&self, offsets: &[(String, i32, i64)]) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in offsets {
            let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
        }
        let committed = self.consumer.commit(&list, CommitMode::Sync);
        committed.map_err(|error| self.failed(&error))
    }

    fn serve(&self) {
        Client::serve(self);
    }

    fn end_of(&self, (topic, partition): TopicPartition<'_>) -> Option<i64> {
        self.consumer.context().stable_end_of(topic, partition)
    }

    fn open(
        self: Arc<Self>,
        (topic, partition): TopicPartition<'_>,
        offset: i64,
        wake: Wake,
    ) -> Result<Box<dyn Queue>, Error> {
        let queue = self.consumer.split_partition_queue(topic, partition);
        let mut queue = queue.ok_or_else(|| Error::Client {
            servers: self.servers.clone(),
            reason: format!("there is no queue for topic \"{topic}\", partition {partition}"),
        })?;
        queue.set_nonempty_callback(move || wake.wake());
        let list = Self::list((topic, partition), Offset::Offset(offset));
        let assigned = self.consumer.incremental_assign(&list);
        assigned.map_err(|error| self.failed(&error))?;
        Ok(Box::new(Fetched {
            topic: topic.to_owned(),
            partition,
            client: self,
            queue,
        }))
    }
}

/// The queue of one partition.
struct Fetched {
    topic: String,
    partition: i32,
    // Closed before the client, of which it is a part.
    queue: PartitionQueue<Context>,
    client: Arc<Client>,
}

impl Queue for Fetched {
    fn poll(&mut self, take: &mut dyn FnMut(&Incoming<'_>)) -> Polled {
        match self.queue.poll(Duration::ZERO) {
            None => {
                self.client.serve();
                Polled::Empty
            }
            Some(Ok(message)) => {
                pass(&message, take);
                Polled::Message
            }
            Some(Err(KafkaError::PartitionEOF(_))) => Polled::AtEnd,
            Some(Err(error)) => {
                Polled::Failed(trouble(&error), self.client.failed(&error).to_string())
            }
        }
    }

    fn ended_before(&self) -> Option<i64> {
        self.client
            .consumer
            .context()
            .end_of(&self.topic, self.partition)
    }

    fn commit(&self, offset: i64, waits: bool) -> Result<(), Error> {
        let of = (self.topic.as_str(), self.partition);
        let list = Client::list(of, Offset::Offset(offset));
        let mode = match waits {
            true => CommitMode::Sync,
            false => CommitMode::Async,
        };
        let begun = self.client.consumer.commit(&list, mode);
        begun.map_err(|error| self.client.failed(&error))
    }

    fn notices(&self) -> Vec<Notice> {
        self.client.consumer.context().take_notices()
    }
}

fn pass(message: &BorrowedMessage<'_>, take: &mut dyn FnMut(&Incoming<'_>)) {
    let headers = |each: &mut dyn FnMut(&str, Option<&[u8]>)| {
        let headers = message.headers();
        headers.map_or(0, |headers| each_readable(headers, each))
    };
    take(&Incoming {
        offset: message.offset(),
        time_ms: message.timestamp().to_millis(),
        key: message.key(),
        value: message.payload(),
        headers: &headers,
    });
}

fn trouble(error: &KafkaError) -> Trouble {
    let Some(code) = error.rdkafka_error_code() else {
        return Trouble::Lasting;
    };
    match code {
        RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange => Trouble::NoOffset,
        RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition => Trouble::NoTopic,
        RDKafkaErrorCode::TopicAuthorizationFailed
        | RDKafkaErrorCode::BadMessage
        | RDKafkaErrorCode::InvalidMessage
        | RDKafkaErrorCode::MessageSizeTooLarge
        | RDKafkaErrorCode::InvalidMessageSize
        | RDKafkaErrorCode::NotImplemented
        | RDKafkaErrorCode::UnsupportedCompressionType
        | RDKafkaErrorCode::Fatal => Trouble::Lasting,
        _ => Trouble::Passing,
    }
}
