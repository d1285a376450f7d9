//! What the client reports on its own: logs, errors of connections, statistics.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;

use super::Notice;

/// The largest number of notices that wait to be read.
const NOTICES_MAX: usize = 64;

/// The context of a client.
#[derive(Default)]
pub(crate) struct Context(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    notices: VecDeque<Notice>,
    /// The last error of a connection.
    last: Option<Notice>,
    /// The offset of the last end of each partition that the client has reported.
    ends: HashMap<String, HashMap<i32, i64>>,
    /// The offset after the last message of each partition that may be read, as of the last statistics.
    stable_ends: HashMap<String, HashMap<i32, i64>>,
    /// The identity of each topic whose metadata was asked for.
    topic_ids: HashMap<String, String>,
}

impl Context {
    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the notices since the last call.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.lock().notices.drain(..).collect()
    }

    /// Returns the last error of a connection.
    pub(crate) fn last(&self) -> Option<Notice> {
        self.lock().last.clone()
    }

    /// Returns the offset at which the client has last reported the end of a partition.
    pub(crate) fn end_of(&self, topic: &str, partition: i32) -> Option<i64> {
        self.lock().ends.get(topic)?.get(&partition).copied()
    }
}

impl Context {
    /// Returns the offset at which a partition ends, as of the last statistics.
    pub(crate) fn stable_end_of(&self, topic: &str, partition: i32) -> Option<i64> {
        let reports = self.lock();
        reports.stable_ends.get(topic)?.get(&partition).copied()
    }

    /// Takes the identity of a topic, if the client has reported it since the last call.
    pub(crate) fn take_topic_id(&self, topic: &str) -> Option<String> {
        self.lock().topic_ids.remove(topic)
    }
}

/// Returns topic and identity of a line of the client's log about metadata. No function of the client returns the identity.
fn parse_topic_id(text: &str) -> Option<(&str, &str)> {
    let (before, after) = text.rsplit_once(" changed id from ")?;
    let (_, topic) = before.split_once("Topic ")?;
    let (_, id) = after.split_once(" to ")?;
    Some((topic, id.trim()))
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => tracing::warn!("kafka client: {facility}: {text}"),
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!("kafka client: {facility}: {text}");
            }
            RDKafkaLogLevel::Debug => {
                if let Some((topic, id)) = parse_topic_id(text) {
                    let mut reports = self.lock();
                    reports.topic_ids.insert(topic.to_owned(), id.to_owned());
                }
                tracing::trace!("kafka client: {facility}: {text}");
            }
        }
    }

    fn stats(&self, statistics: Statistics) {
        let mut reports = self.lock();
        for (name, topic) in &statistics.topics {
            for (number, partition) in &topic.partitions {
                let end = match partition.ls_offset {
                    0.. => partition.ls_offset,
                    _ => partition.hi_offset,
                };
                if *number >= 0 && end >= 0 {
                    let ends = reports.stable_ends.entry(name.clone()).or_default();
                    ends.insert(*number, end);
                }
                if *number >= 0 && partition.eof_offset >= 0 {
                    let ends = reports.ends.entry(name.clone()).or_default();
                    ends.insert(*number, partition.eof_offset);
                }
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::PartitionEOF) {
            return;
        }
        let refused = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::Authentication
                    | RDKafkaErrorCode::SaslAuthenticationFailed
                    | RDKafkaErrorCode::SSL
                    | RDKafkaErrorCode::ClusterAuthorizationFailed
                    | RDKafkaErrorCode::TopicAuthorizationFailed
                    | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
            )
        );
        let notice = match refused {
            true => Notice::Refused(reason.to_owned()),
            false => Notice::Passing(reason.to_owned()),
        };
        let mut reports = self.lock();
        // That all brokers are down says less than why one of them is.
        let general = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        if !general || reports.last.is_none() {
            reports.last = Some(notice.clone());
        }
        if reports.notices.len() < NOTICES_MAX {
            reports.notices.push_back(notice);
        }
    }
}

impl ConsumerContext for Context {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_topic_is_in_a_line_of_the_log() {
        let line = "[thrd:main]: Topic a.Topic b changed id from AAAAAAAAAAAAAAAAAAAAAA to 3Vf9GtWbQfC8eUe5Dmvq0w";
        let parsed = parse_topic_id(line);
        assert_eq!(parsed, Some(("a.Topic b", "3Vf9GtWbQfC8eUe5Dmvq0w")));
        assert_eq!(
            parse_topic_id("[thrd:main]: Topic a [0] Leader 1 Epoch 0"),
            None
        );
    }
}
