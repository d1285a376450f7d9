//! The rights that a cluster with an authorizer asks for, by the codes with which a broker refuses a request.
//!
//! A broker says that a request is refused, and not which right is missing. The kind of the resource is in the code,
//! and the client knows what it has asked for.

use rdkafka::error::RDKafkaErrorCode;

use crate::error::Error;

/// What a client asks a cluster for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resources<'a> {
    pub(super) topic: &'a str,
    /// Whether it writes to the topic, or else reads it.
    pub(super) writes: bool,
    pub(super) group: &'a str,
    pub(super) transactional_id: &'a str,
}

/// Whether a broker refuses with this code because a right is missing.
pub(super) fn is_denial(code: RDKafkaErrorCode) -> bool {
    named(code, Resources::default()).is_some()
}

/// Returns the error of a request that a broker refuses with this code, if that is because a right is missing.
pub(super) fn missing(
    servers: &str,
    code: RDKafkaErrorCode,
    resources: Resources<'_>,
) -> Option<Error> {
    Some(Error::NoRight {
        servers: servers.to_owned(),
        right: named(code, resources)?,
        reason: code.to_string(),
    })
}

/// Returns the right that is missing, in words.
pub(super) fn named(code: RDKafkaErrorCode, resources: Resources<'_>) -> Option<String> {
    let Resources {
        topic,
        writes,
        group,
        transactional_id,
    } = resources;
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed if writes => Some(format!(
            "WRITE and DESCRIBE on the topic \"{topic}\", and on others that messages name"
        )),
        RDKafkaErrorCode::TopicAuthorizationFailed => {
            Some(format!("READ and DESCRIBE on the topic \"{topic}\""))
        }
        RDKafkaErrorCode::GroupAuthorizationFailed => {
            Some(format!("READ on the group \"{group}\""))
        }
        RDKafkaErrorCode::TransactionalIdAuthorizationFailed => Some(format!(
            "WRITE and DESCRIBE on the transactional id \"{transactional_id}\""
        )),
        RDKafkaErrorCode::ClusterAuthorizationFailed => Some(
            "IDEMPOTENT_WRITE on the cluster, or with brokers since 3.0 WRITE on the topic"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_right_and_resource() {
        let of = Resources {
            topic: "orders",
            group: "totals",
            transactional_id: "millstream.a.b.c",
            writes: false,
        };
        let said = |code, of| missing("k:1", code, of).unwrap().to_string();
        let text = said(RDKafkaErrorCode::TopicAuthorizationFailed, of);
        assert!(
            text.contains("READ and DESCRIBE on the topic \"orders\""),
            "{text}"
        );
        let writes = Resources { writes: true, ..of };
        let text = said(RDKafkaErrorCode::TopicAuthorizationFailed, writes);
        assert!(
            text.contains("WRITE and DESCRIBE on the topic \"orders\""),
            "{text}"
        );
        let text = said(RDKafkaErrorCode::GroupAuthorizationFailed, of);
        assert!(text.contains("READ on the group \"totals\""), "{text}");
        let text = said(RDKafkaErrorCode::TransactionalIdAuthorizationFailed, of);
        assert!(
            text.contains("transactional id \"millstream.a.b.c\""),
            "{text}"
        );
        assert!(missing("k:1", RDKafkaErrorCode::AllBrokersDown, of).is_none());
        assert!(!is_denial(RDKafkaErrorCode::UnknownTopic));
    }
}
