//! What the client reports on its own: logs, errors of connections, statistics.

use std::collections::{HashMap, VecDeque};
use std::error::Error as StdError;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;

use super::rights::is_denial;
use super::tokens::Tokens;
use super::{Ends, Notice};

/// The largest number of notices that wait to be read.
const NOTICES_MAX: usize = 64;

/// What the client reports when the function that makes tokens has failed.
const NO_TOKEN: &str = "Failed to acquire SASL OAUTHBEARER token";

/// The context of a client.
#[derive(Default)]
pub(crate) struct Context {
    reports: Mutex<Reports>,
    tokens: Option<Tokens>,
}

#[derive(Default)]
struct Reports {
    notices: VecDeque<Notice>,
    /// The last error of a connection.
    last: Option<Notice>,
    /// The offset of the last end of each partition that the client has reported.
    ends: HashMap<String, HashMap<i32, i64>>,
    /// Where each partition ends, as of the last statistics.
    log_ends: HashMap<String, HashMap<i32, Ends>>,
    /// The last refusal because of a missing right that was no answer to a call.
    denied: Option<RDKafkaErrorCode>,
    /// The identity of each topic whose metadata was asked for.
    topic_ids: HashMap<String, String>,
}

impl Context {
    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context of a client that logs in with tokens.
    pub(crate) fn with_tokens(tokens: Option<Tokens>) -> Self {
        Context {
            tokens,
            ..Context::default()
        }
    }

    /// Takes the notices since the last call.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.lock().notices.drain(..).collect()
    }

    /// Returns the last error of a connection.
    pub(crate) fn last(&self) -> Option<Notice> {
        self.lock().last.clone()
    }

    /// Notes an event of the client that is no message.
    pub(crate) fn note(&self, error: &KafkaError) {
        let denied = error.rdkafka_error_code().filter(|code| is_denial(*code));
        if denied.is_some() {
            self.lock().denied = denied;
        }
    }

    /// Returns the last refusal because of a missing right that was noted. The client reports it once.
    pub(crate) fn denied(&self) -> Option<RDKafkaErrorCode> {
        self.lock().denied
    }

    /// Returns the offset at which the client has last reported the end of a partition.
    pub(crate) fn end_of(&self, topic: &str, partition: i32) -> Option<i64> {
        self.lock().ends.get(topic)?.get(&partition).copied()
    }
}

impl Context {
    /// Returns where a partition ends, as of the last statistics.
    pub(crate) fn ends_of(&self, topic: &str, partition: i32) -> Option<Ends> {
        let reports = self.lock();
        reports.log_ends.get(topic)?.get(&partition).copied()
    }

    /// Takes the identity of a topic, if the client has reported it since the last call.
    pub(crate) fn take_topic_id(&self, topic: &str) -> Option<String> {
        self.lock().topic_ids.remove(topic)
    }
}

/// Returns topic and identity of a line of the client's log about metadata. No function of the client returns the
/// identity.
fn parse_topic_id(text: &str) -> Option<(&str, &str)> {
    let (before, after) = text.rsplit_once(" changed id from ")?;
    let (_, topic) = before.split_once("Topic ")?;
    let (_, id) = after.split_once(" to ")?;
    Some((topic, id.trim()))
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        match &self.tokens {
            Some(tokens) => tokens
                .make()
                .map_err(|cause| -> Box<dyn StdError> { cause }),
            None => Err(
                "OAUTHBEARER needs a function that makes tokens: token= (Settings::with_token)"
                    .into(),
            ),
        }
    }

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
                let stable = match partition.ls_offset {
                    0.. => partition.ls_offset,
                    _ => partition.hi_offset,
                };
                if *number >= 0 && stable >= 0 {
                    let high = partition.hi_offset.max(stable);
                    let ends = reports.log_ends.entry(name.clone()).or_default();
                    ends.insert(*number, Ends { stable, high });
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
        // The client asks the function again.
        let refused = refused && !reason.contains(NO_TOKEN);
        let notice = if refused {
            Notice::Refused(reason.to_owned())
        } else {
            Notice::Passing(reason.to_owned())
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
