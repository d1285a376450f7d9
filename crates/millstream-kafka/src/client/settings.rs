//! The settings of the client by librdkafka's names.

use std::collections::BTreeMap;
use std::time::Duration;

use millstream_flow::error::Cause;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::tokens::{Token, Tokens};
use crate::error::Error;

/// The interval at which a source looks for changes of its topics, unless the settings have another
/// `topic.metadata.refresh.interval.ms`.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// How long a call waits for a broker, unless the settings have another `socket.timeout.ms`.
const PATIENCE: Duration = Duration::from_secs(10);
/// The largest message of a producer, as librdkafka has it.
const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// What the connector sets unless the user does.
const COMMON: &[(&str, &str)] = &[
    // A broker that comes back is found within a second.
    ("reconnect.backoff.max.ms", "1000"),
    ("allow.auto.create.topics", "false"),
];
const CONSUMER: &[(&str, &str)] = &[
    // Four times as many messages a second as with the default of a second.
    ("fetch.queue.backoff.ms", "5"),
    ("fetch.wait.max.ms", "100"),
    ("queued.min.messages", "100000"),
    ("isolation.level", "read_committed"),
    ("check.crcs", "true"),
    ("statistics.interval.ms", "1000"),
    ("topic.metadata.refresh.interval.ms", "60000"),
];
/// What the connector depends on.
const CONSUMER_FIXED: &[(&str, &str)] = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("auto.offset.reset", "error"),
    ("enable.partition.eof", "true"),
];
const PRODUCER: &[(&str, &str)] = &[
    ("linger.ms", "1"),
    // As Java's producer, so that equal keys of both are in the same partition.
    ("partitioner", "murmur2_random"),
    ("queue.buffering.max.messages", "1000000"),
];
const PRODUCER_FIXED: &[(&str, &str)] = &[("enable.idempotence", "true"), ("acks", "all")];

/// The memory of all partition queues of a consumer together.
const QUEUED_KIB: usize = 65_536;

/// Settings by librdkafka's names. The user's replace the defaults of the connector.
///
/// ```
/// use millstream_kafka::Settings;
///
/// let settings = Settings::default().with("security.protocol", "ssl");
/// assert_eq!(settings.get("security.protocol"), Some("ssl"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Settings {
    values: BTreeMap<String, String>,
    tokens: Option<Tokens>,
}

/// Shows the names only: values may be secrets.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

/// The settings whose wrong values are shown. Any other value may be a secret, that of a mistyped name too.
const SHOWN: &[&str] = &[
    "acks",
    "batch.num.messages",
    "compression.codec",
    "compression.type",
    "isolation.level",
    "message.max.bytes",
    "message.timeout.ms",
    "partition.assignment.strategy",
    "partitioner",
    "sasl.mechanism",
    "sasl.mechanisms",
    "security.protocol",
    "socket.timeout.ms",
    "ssl.endpoint.identification.algorithm",
    "statistics.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "transaction.timeout.ms",
];

/// Returns the client's reason for refusing a setting, with the value only where it can be no secret.
pub(super) fn without_secret(name: &str, value: &str, reason: &str) -> String {
    if SHOWN.contains(&name) {
        format!("{reason} (the value is {value:?})")
    } else if value.is_empty() {
        reason.to_owned()
    } else {
        reason.replace(value, "...")
    }
}

impl Settings {
    /// Sets the value of a name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// Returns the value of a name, if the user has set it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Logs in by SASL/OAUTHBEARER with the tokens that `make` returns: it is called when a client connects, and again
    /// before each token ends. An error of it is logged, and it is called again after 10 seconds. Sets
    /// `sasl.mechanism`.
    ///
    /// ```
    /// use millstream_kafka::{Settings, Token};
    ///
    /// # fn ask_for_token() -> std::io::Result<(String, i64)> { Ok((String::new(), 0)) }
    /// let settings = Settings::default()
    ///     .with("security.protocol", "sasl_ssl")
    ///     .with_token(|| {
    ///         let (value, ends_ms) = ask_for_token()?;
    ///         Ok(Token::new(value, ends_ms))
    ///     });
    /// assert_eq!(settings.get("sasl.mechanism"), Some("OAUTHBEARER"));
    /// ```
    #[must_use]
    pub fn with_token(
        mut self,
        make: impl Fn() -> Result<Token, Cause> + Send + Sync + 'static,
    ) -> Self {
        self.tokens = Some(Tokens::new(make));
        self.with("sasl.mechanism", "OAUTHBEARER")
    }

    /// What makes the tokens, if the user has it.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.tokens.clone()
    }

    /// How long a call waits for a broker.
    pub(crate) fn patience(&self) -> Duration {
        let millis = self
            .get("socket.timeout.ms")
            .and_then(|text| text.parse().ok());
        millis.map_or(PATIENCE, Duration::from_millis)
    }

    /// The interval at which a source looks for new partitions, and for topics that were created anew. None: it does
    /// not look.
    pub(crate) fn look_interval(&self) -> Option<Duration> {
        match self.get("topic.metadata.refresh.interval.ms") {
            Some("-1") => None,
            set => {
                let millis = set.and_then(|text| text.parse().ok());
                Some(millis.map_or(LOOK_INTERVAL, Duration::from_millis))
            }
        }
    }

    /// The configuration of a consumer for questions about topics, which fetches nothing.
    pub(crate) fn questions(&self, servers: &str, group: &str) -> Result<ClientConfig, Error> {
        let mut config = self.consumer(servers, group, 1)?;
        // The identity of a topic is in the log only.
        config.set_log_level(RDKafkaLogLevel::Debug);
        config.set("debug", "metadata");
        config.set("statistics.interval.ms", "0");
        Ok(config)
    }

    /// The largest message that a producer takes, in bytes of key, value and headers.
    pub(crate) fn message_bytes_max(&self) -> usize {
        let set = self
            .get("message.max.bytes")
            .or(self.get("max.message.bytes"));
        set.and_then(|text| text.parse().ok())
            .unwrap_or(MESSAGE_BYTES_MAX)
    }

    /// The configuration of a consumer for so many partitions.
    pub(crate) fn consumer(
        &self,
        servers: &str,
        group: &str,
        partitions: usize,
    ) -> Result<ClientConfig, Error> {
        let each = (QUEUED_KIB / partitions.max(1)).max(1024).to_string();
        let own = [("queued.max.messages.kbytes", each.as_str())];
        let mut config = self.config(servers, &[COMMON, CONSUMER, &own], CONSUMER_FIXED)?;
        config.set("group.id", group);
        Ok(config)
    }

    /// The configuration of a client that neither fetches nor produces: the settings of the connection.
    pub(crate) fn connection(&self, servers: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Warning);
        let parts = [
            "security.",
            "ssl.",
            "sasl.",
            "socket.",
            "enable.ssl",
            "broker.",
            "client.",
        ];
        for (name, value) in &self.values {
            if parts.iter().any(|part| name.starts_with(part)) {
                config.set(name, value);
            }
        }
        config.set("bootstrap.servers", servers);
        config
    }

    /// The configuration of a producer.
    pub(crate) fn producer(&self, servers: &str) -> Result<ClientConfig, Error> {
        self.config(servers, &[COMMON, PRODUCER], PRODUCER_FIXED)
    }

    fn config(
        &self,
        servers: &str,
        defaults: &[&[(&str, &str)]],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, Error> {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Warning);
        for (name, value) in defaults.iter().copied().flatten() {
            config.set(*name, *value);
        }
        for (name, value) in &self.values {
            if let Some((_, needed)) = fixed.iter().find(|(fixed, _)| fixed == name) {
                return Err(Error::Setting {
                    name: name.clone(),
                    reason: format!("the connector needs the value {needed}, not {value}"),
                });
            }
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        config.set("bootstrap.servers", servers);
        Ok(config)
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Settings {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let values = pairs.map(|(name, value)| (name.into(), value.into()));
        Settings {
            values: values.collect(),
            tokens: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_only_where_it_can_be_no_secret() {
        let reason = "Invalid value \"hunter2\" for configuration property";
        for (name, shown) in [
            ("security.protocol", true),
            ("sasl.password", false),
            ("sasl.pasword", false),
            ("ssl.key.pem", false),
        ] {
            let said = without_secret(name, "hunter2", reason);
            assert_eq!(said.contains("hunter2"), shown, "{name}: {said}");
        }
        let settings = Settings::default().with("sasl.password", "hunter2");
        assert_eq!(format!("{settings:?}"), "{\"sasl.password\"}");
    }

    #[test]
    fn the_user_replaces_defaults_and_not_what_the_connector_needs() {
        let settings = Settings::default().with("fetch.queue.backoff.ms", "7");
        let config = settings.consumer("a:1", "group", 16).unwrap();
        assert_eq!(config.get("fetch.queue.backoff.ms"), Some("7"));
        assert_eq!(config.get("queued.max.messages.kbytes"), Some("4096"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
        let error = Settings::default()
            .with("auto.offset.reset", "latest")
            .consumer("a:1", "group", 1)
            .unwrap_err();
        assert!(error.to_string().contains("auto.offset.reset"), "{error}");
    }
}
