//! The consumer of librdkafka.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use millstream_flow::poller::Wake;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::context::Context;
use super::header_names::each_readable;
use super::leader_epoch;
use super::rights::{self, Resources};
use super::settings::{Settings, without_secret};
use super::tokens;
use super::{
    Consumer, Ends, Incoming, LastRecord, Notice, Polled, Queue, Topic, TopicPartition, Trouble,
};
use crate::error::Error;

/// The number of events of the client that are served at once. An event that is served looks like an empty queue.
const EVENTS: usize = 32;
/// The number of events among which the identity of a topic is, after its metadata were asked for.
const METADATA_EVENTS: usize = 10_000;
/// The delay before a client that has not begun to fetch is asked to seek again.
const SEEK_WAIT: Duration = Duration::from_millis(5);
/// How long an error of a connection may be later than the error of the call that needed it.
const REASON_WAIT: Duration = Duration::from_millis(50);

/// A consumer, and what its calls need.
struct Client {
    servers: String,
    group: String,
    settings: Settings,
    config: ClientConfig,
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
    let config = settings.consumer(servers, group, partitions)?;
    create((servers, group), config, settings)
}

/// Creates a consumer for questions about topics, which fetches nothing.
pub(crate) fn connect_for_questions(
    servers: &str,
    group: &str,
    settings: &Settings,
) -> Result<Arc<dyn Consumer>, Error> {
    create(
        (servers, group),
        settings.questions(servers, group)?,
        settings,
    )
}

fn create(
    (servers, group): (&str, &str),
    config: ClientConfig,
    settings: &Settings,
) -> Result<Arc<dyn Consumer>, Error> {
    let consumer: Result<BaseConsumer<Context>, _> =
        config.create_with_context(Context::with_tokens(settings.tokens()));
    let mut consumer = consumer.map_err(|error| setting(servers, error))?;
    let has_events = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&has_events);
    consumer.set_nonempty_callback(move || flag.store(true, Ordering::Release));
    let consumer = Arc::new(consumer);
    if settings.tokens().is_some() {
        tokens::attend(&consumer, note_event);
    }
    Ok(Arc::new(Client {
        servers: servers.to_owned(),
        group: group.to_owned(),
        settings: settings.clone(),
        config,
        consumer,
        has_events,
    }))
}

/// Serves an event of a client. Messages do not come by this queue.
pub(super) fn note_event(consumer: &BaseConsumer<Context>, wait: Duration) {
    if let Some(Err(error)) = consumer.poll(wait) {
        consumer.context().note(&error);
    }
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

/// Whether a call has failed as the broker that was asked does not lead the partition any more.
fn is_of_leader(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::DestroyBroker
                | RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
        )
    )
}

impl Client {
    /// Returns the error of a call about a topic.
    fn failed(&self, topic: &str, error: &KafkaError) -> Error {
        self.serve_after(error);
        let code = error.rdkafka_error_code();
        code.and_then(|code| self.denied(code, topic))
            .unwrap_or_else(|| failed(&self.servers, self.consumer.context(), error))
    }

    /// Returns the error of a call about the group. Where its right is missing the call only times out: the client
    /// reports the reason as an event.
    fn group_failed(&self, topic: &str, error: &KafkaError) -> Error {
        self.serve_after(error);
        let noted = self.consumer.context().denied();
        let of_group = noted.filter(|_| is_connection(error));
        of_group
            .and_then(|code| self.denied(code, topic))
            .unwrap_or_else(|| self.failed(topic, error))
    }

    /// Asks the leader of a partition. One that is replaced or removed meanwhile does not answer: the next one is
    /// asked, which the metadata name.
    fn ask_leader<T>(
        &self,
        topic: &str,
        ask: impl Fn() -> Result<T, KafkaError>,
    ) -> Result<T, Error> {
        let deadline = now_ns() + self.settings.patience().as_nanos() as u64;
        loop {
            match ask() {
                Err(error) if is_of_leader(&error) && now_ns() < deadline => {
                    let patience = self.settings.patience();
                    let found = self.consumer.fetch_metadata(Some(topic), patience);
                    found.map_err(|error| self.failed(topic, &error))?;
                    self.poll(REASON_WAIT);
                }
                asked => return asked.map_err(|error| self.failed(topic, &error)),
            }
        }
    }

    fn denied(&self, code: RDKafkaErrorCode, topic: &str) -> Option<Error> {
        let resources = Resources {
            topic,
            group: &self.group,
            ..Resources::default()
        };
        rights::missing(&self.servers, code, resources)
    }

    /// Serves the events that tell why a call has failed.
    fn serve_after(&self, error: &KafkaError) {
        if is_connection(error) && self.consumer.context().last().is_none() {
            self.poll(REASON_WAIT);
        }
        self.has_events.store(true, Ordering::Release);
        self.serve();
    }

    fn poll(&self, wait: Duration) {
        note_event(&self.consumer, wait);
    }

    /// Serves the events of the client: logs, errors, statistics.
    fn serve(&self) {
        if self.has_events.swap(false, Ordering::AcqRel) {
            for _ in 0..EVENTS {
                self.poll(Duration::ZERO);
            }
        }
    }

    /// Returns the identity of a topic whose metadata were asked for last, if the client has reported it since.
    fn topic_id(&self, topic: &str) -> Option<String> {
        let mut id = None;
        for _ in 0..METADATA_EVENTS {
            self.poll(Duration::ZERO);
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

    /// Begins to fetch a partition at an offset, if the record before it is of this leader epoch.
    fn assign(
        &self,
        consumer: &BaseConsumer<Context>,
        of: TopicPartition<'_>,
        (offset, epoch): (i64, Option<i32>),
    ) -> Result<(), Error> {
        let list = || {
            let mut list = Self::list(of, Offset::Offset(offset));
            if let Some(epoch) = epoch {
                leader_epoch::set(&mut list, of, epoch);
            }
            list
        };
        let assigned = consumer.incremental_assign(&list());
        assigned.map_err(|error| self.failed(of.0, &error))?;
        let deadline = now_ns() + self.settings.patience().as_nanos() as u64;
        // The client compares epochs where it seeks only, and seeks only once it has begun.
        while epoch.is_some() {
            let sought = consumer.seek_partitions(list(), self.settings.patience());
            let sought = sought.and_then(|list| Self::only(&list));
            match sought {
                Ok(_) => break,
                Err(KafkaError::OffsetFetch(RDKafkaErrorCode::State)) if now_ns() < deadline => {
                    note_event(consumer, SEEK_WAIT);
                }
                Err(error) => return Err(self.failed(of.0, &error)),
            }
        }
        Ok(())
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
        let metadata = self
            .consumer
            .fetch_metadata(Some(topic), self.settings.patience());
        let metadata = metadata.map_err(|error| self.failed(topic, &error))?;
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
            Some(code) => return Err(self.failed(topic, &KafkaError::MetadataFetch(code))),
        }
        match found.partitions().len() {
            0 => Err(missing()),
            count => Ok(Topic {
                partitions: count,
                leaderless: found
                    .partitions()
                    .iter()
                    .find(|partition| partition.leader() < 0)
                    .map(|partition| partition.id()),
                id: self.topic_id(topic),
            }),
        }
    }

    fn bounds(&self, (topic, partition): TopicPartition<'_>) -> Result<(i64, i64), Error> {
        let patience = self.settings.patience();
        self.ask_leader(topic, || {
            self.consumer.fetch_watermarks(topic, partition, patience)
        })
    }

    fn offset_at(&self, of: TopicPartition<'_>, time_ms: i64) -> Result<Option<i64>, Error> {
        let patience = self.settings.patience();
        self.ask_leader(of.0, || {
            let times = Self::list(of, Offset::Offset(time_ms));
            let found = self.consumer.offsets_for_times(times, patience);
            found.and_then(|list| Self::only(&list))
        })
    }

    fn group_offset(&self, of: TopicPartition<'_>) -> Result<Option<i64>, Error> {
        let asked = Self::list(of, Offset::Invalid);
        let found = self
            .consumer
            .committed_offsets(asked, self.settings.patience());
        let found = found.and_then(|list| Self::only(&list));
        found.map_err(|error| self.group_failed(of.0, &error))
    }

    fn commit(&self, offsets: &[(String, i32, i64)]) -> Result<(), Error> {
        let mut list = TopicPartitionList::new();
        for (topic, partition, offset) in offsets {
            let _ = list.add_partition_offset(topic, *partition, Offset::Offset(*offset));
        }
        let topic = offsets.first().map_or("", |(topic, ..)| topic);
        let committed = self.consumer.commit(&list, CommitMode::Sync);
        committed.map_err(|error| self.group_failed(topic, &error))
    }

    fn serve(&self) {
        Client::serve(self);
    }

    fn end_of(&self, (topic, partition): TopicPartition<'_>) -> Option<Ends> {
        self.consumer.context().ends_of(topic, partition)
    }

    fn kept_before(&self, of: TopicPartition<'_>, last: LastRecord) -> Result<Option<i64>, Error> {
        // A client that may begin elsewhere begins where the epoch ends, and fetches the message there.
        let mut config = self.config.clone();
        config.set("auto.offset.reset", "earliest");
        config.set("isolation.level", "read_uncommitted");
        config.set("queued.min.messages", "1");
        let reader: Result<BaseConsumer<Context>, _> =
            config.create_with_context(Context::with_tokens(self.settings.tokens()));
        let reader = reader.map_err(|error| setting(&self.servers, error))?;
        self.assign(&reader, of, (last.end, Some(last.epoch)))?;
        let deadline = now_ns() + self.settings.patience().as_nanos() as u64;
        while now_ns() < deadline {
            if let Some(Ok(message)) = reader.poll(REASON_WAIT) {
                return Ok(Some(message.offset()));
            }
        }
        Ok(None)
    }

    fn open(
        self: Arc<Self>,
        (topic, partition): TopicPartition<'_>,
        (offset, epoch): (i64, Option<i32>),
        wake: Wake,
    ) -> Result<Box<dyn Queue>, Error> {
        let queue = self.consumer.split_partition_queue(topic, partition);
        let mut queue = queue.ok_or_else(|| Error::Client {
            servers: self.servers.clone(),
            reason: format!("there is no queue for topic \"{topic}\", partition {partition}"),
        })?;
        queue.set_nonempty_callback(move || wake.wake());
        self.assign(&self.consumer, (topic, partition), (offset, epoch))?;
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
                let said = self.client.failed(&self.topic, &error).to_string();
                Polled::Failed(trouble(&error), said)
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
        let mode = if waits {
            CommitMode::Sync
        } else {
            CommitMode::Async
        };
        let begun = self.client.consumer.commit(&list, mode);
        begun.map_err(|error| self.client.group_failed(&self.topic, &error))
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
        epoch: leader_epoch::of_message(message),
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
        RDKafkaErrorCode::AutoOffsetReset
        | RDKafkaErrorCode::OffsetOutOfRange
        | RDKafkaErrorCode::LogTruncation => Trouble::NoOffset,
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
